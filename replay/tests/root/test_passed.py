"""A descriptor sent through a socket, and programs that do not exist, in a recorded replay."""

import sys
from pathlib import Path

import pytest

from spoolscope.replay.engine import Engine
from spoolscope.replay.plan import build
from spoolscope.replay.run import replay
from spoolscope.tracers.session import Request, record
from spoolscope.traces.trace import Trace

pytestmark = [pytest.mark.root, pytest.mark.steady]
PROGRAM = Path(__file__).with_name("passed.py")


@pytest.fixture
def recorded(spool, tmp_path) -> Path:
    """Return the trace of the program."""
    command = [sys.executable, str(PROGRAM), str(spool("ext4"))]
    done = record(Request([Path(command[-1])], tmp_path / "trace", command=command))
    assert done.command_status == 0
    return done.trace


def writes(trace: Path) -> list[tuple[int, int]]:
    """Return position and bytes of each write."""
    calls = Trace.open(trace).table("syscalls").to_pylist()
    return [(row["offset"], row["ret"]) for row in calls if row["syscall"] == "write"]


def test_sent_descriptors_are_had_again(recorded, tmp_path):
    def recorder(mount: Path, command: list[str], output: Path, _show: object) -> int:
        return record(Request([mount], output, command=command)).command_status or 0

    calls = Trace.open(recorded).table("syscalls").to_pylist()
    failed = [row for row in calls if row["syscall"] == "execve" and row["errno"]]
    assert len(failed) >= 2
    (row,) = replay(recorded, ["ext4"], tmp_path / "out", recorder=recorder)
    run = Path(row["run"])
    assert row["executed"] == row["syscalls"], (run / "divergences.json").read_text()
    assert row["divergent"] == 0, (run / "divergences.json").read_text()
    assert row["final_state"]["mismatched"] == 0, row["final_state"]
    assert row["descriptors_passed"] == 1
    # By the kernel both share one position, in the recording and in the replay.
    assert writes(recorded) == writes(run / "trace") == [(0, 10), (10, 100), (110, 50)]


def test_a_plan_tells_what_was_sent(recorded, tmp_path):
    build(Trace.open(recorded), tmp_path / "plan")
    assert Engine(tmp_path / "plan").order()["descriptors_passed"] == 1
