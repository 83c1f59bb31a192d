"""Encoded numbers, against Google's own encoder."""

import pytest
from google.protobuf.internal.encoder import _VarintBytes

from spoolscope.export.protobuf import varint

EDGES = sorted({n for bits in range(64) for n in ((1 << bits) - 1, 1 << bits, (1 << bits) + 1)})


@pytest.mark.parametrize("number", [n for n in EDGES if n < 1 << 64])
def test_a_varint_is_googles(number: int) -> None:
    assert varint(number) == _VarintBytes(number)


def test_a_negative_number_has_64_bits() -> None:
    assert varint(-1) == _VarintBytes((1 << 64) - 1)
    assert varint(-100) == _VarintBytes((1 << 64) - 100)
