"""Calls that no plan can have are counted in the part that is asked for."""

from pathlib import Path

import pytest

from spoolscope.replay.planned import plan
from spoolscope.replay.whatif import parse
from spoolscope.traces.trace import Trace

IN_FLIGHT = 8


@pytest.fixture
def trace(script, tmp_path: Path) -> Trace:
    """Two servers, each with a call that never returned, and two calls of unknown threads."""
    script.thread(10, comm="lmtp")
    script.thread(20, comm="imap")
    for at_ms in (1, 11, 21):
        script.call(10, at_ms, "stat", "u1/x", ret=-2)
        script.call(20, at_ms, "stat", "u2/x", ret=-2)
    script.call(10, 12, "flock", "u1/lock", fd=3, cmd=2, flags_seen=IN_FLIGHT)
    script.call(20, 22, "flock", "u2/lock", fd=3, cmd=2, flags_seen=IN_FLIGHT)
    script.thread(30, pid=20)
    script.call(30, 2, "stat", "u1/y", ret=-2)
    script.call(31, 13, "rename", "u3/y", path2="u2/z")
    del script.threads[30], script.threads[31]
    return Trace.open(script.write(tmp_path / "trace"))


@pytest.mark.parametrize(
    ("part", "only", "counted"),
    [
        (None, [], (2, 2)),
        ("..10ms", [], (0, 1)),
        ("10ms..20ms", [], (1, 1)),
        ("20ms..", [], (1, 0)),
        (None, ["lmtp"], (1, 0)),
        (None, ["20"], (1, 1)),
        (None, ["imap"], (1, 0)),
        (None, ["/u1/"], (1, 1)),
        (None, ["u2"], (1, 1)),
        ("10ms..20ms", ["u1", "u2"], (1, 1)),
    ],
)
def test_a_part_says_what_the_whole_says(
    trace: Trace, tmp_path: Path, part: str | None, only: list[str], counted: tuple[int, int]
) -> None:
    summary, _ = plan(trace, tmp_path / "plan", parse([], 1, part, only))
    assert (summary.in_flight, summary.strangers) == counted
