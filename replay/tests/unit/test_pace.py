"""Paces by their names."""

import json
import subprocess

import pytest

from spoolscope.replay.pace import FASTEST, SLOWEST, parse_pace
from spoolscope.traces.errors import SpoolscopeError
from spoolscope.traces.native import find_binary


@pytest.mark.parametrize("text", ["original", "scaled=1", "scaled=0.001", "scaled=1000000"])
def test_open_loops(text: str) -> None:
    assert parse_pace(text).loop == "open"


@pytest.mark.parametrize(
    "text", ["", "fast", "scaled", "scaled=x", "scaled=0", "scaled=-1", "scaled=nan", "scaled=inf"]
)
def test_what_is_no_pace(text: str) -> None:
    with pytest.raises(SpoolscopeError, match="unknown pace"):
        parse_pace(text)


@pytest.mark.parametrize("text", ["scaled=1e-300", "scaled=1e300"])
def test_times_stay_numbers(text: str) -> None:
    """With such a pace a replay at full speed was once called faithful."""
    with pytest.raises(SpoolscopeError) as caught:
        parse_pace(text)
    assert "0.001 to 1,000,000" in caught.value.remedy


def test_the_replayer_has_the_same_limits() -> None:
    words = [str(find_binary("spoolscope-replay")), "layout"]
    layout = subprocess.run(words, capture_output=True, check=True).stdout
    assert json.loads(layout)["paces"] == [SLOWEST, FASTEST]
