"""Names of any bytes become text and come back."""

import pytest

from spoolscope.traces.text import decoded, escaped


def test_escaped_bytes_come_back() -> None:
    assert decoded("caf%C3%A9 100%25") == "café 100%".encode()
    assert decoded("raw %FF") == b"raw \xff"


@pytest.mark.parametrize("name", [bytes(range(1, 256)), "café 100%".encode(), b"%41", b"plain"])
def test_every_name_comes_back(name: bytes) -> None:
    assert decoded(escaped(name)) == name
