"""What processes held when the recording began, in replays that are recorded themselves."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from spoolscope.replay.outcomes import read_plan
from spoolscope.replay.plan import build
from spoolscope.replay.run import replay
from spoolscope.tracers.session import Request, record
from spoolscope.traces.trace import Trace

pytestmark = [pytest.mark.root, pytest.mark.steady]
PROGRAM = Path(__file__).with_name("start.py")
SETLKW, WRLCK, UNLCK = 7, 1, 2
# Its neighbours may be dirty with it: large folios.
FIRST_PAGE = 3


@pytest.fixture
def recorded(spool, when_ready, tmp_path) -> Path:
    """A trace that begins when the program holds all it wants."""
    mount, output = spool("ext4"), tmp_path / "trace"
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, PROGRAM, mount], **pipes) as program:
        assert program.stdout is not None
        assert program.stdin is not None
        assert program.stdout.readline() == "ready\n"
        tell = program.stdin

        def go_on() -> None:
            tell.write("go\n")
            tell.flush()

        when_ready(output, go_on)
        done = record(Request([mount], output, duration_s=3, keep_names=True))
        assert program.wait() == 0
    assert done.meta["complete"]
    return done.trace


def touched(trace: Path) -> set[int]:
    table = Trace.open(trace).table("faults")
    return {row["page"] for row in table.to_pylist() if row["write"]}


def test_held_again(recorded, tmp_path):
    def recorder(mount: Path, command: list[str], output: Path) -> int:
        request = Request([mount], output, command=command, keep_names=True, snapshot="none")
        return record(request).command_status or 0

    names = {row["kind"] for row in Trace.open(recorded).table("held_locks").to_pylist()}
    assert names == {"posix"}
    (row,) = replay(recorded, ["ext4"], tmp_path / "out", recorder=recorder)
    run = Path(row["run"])
    assert row["executed"] == row["syscalls"], (run / "divergences.json").read_text()
    assert row["divergent"] == 0, (run / "divergences.json").read_text()
    assert row["final_state"]["mismatched"] == 0, row["final_state"]
    assert row["orders_given_up"] == 0
    build(Trace.open(recorded), tmp_path / "plan")
    ops = read_plan(tmp_path / "plan").ops
    outcomes = pq.read_table(run / "outcomes.parquet").to_pylist()
    waited = (ops["cmd"] == SETLKW) & (ops["lock_type"] == WRLCK)
    (got,) = (outcomes[at] for at in np.flatnonzero(waited))
    (gave,) = (outcomes[at] for at in np.flatnonzero(ops["lock_type"] == UNLCK))
    assert got["issue_ns"] < gave["issue_ns"] < got["end_ns"]
    assert FIRST_PAGE in touched(recorded)
    assert row["faults"]["touched"] == row["faults"]["recorded"]
    assert FIRST_PAGE in touched(run / "trace")
