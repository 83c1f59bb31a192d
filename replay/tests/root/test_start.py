"""Files, locks and mappings held when the recording began, in replays that are recorded."""

import subprocess
import sys
from collections.abc import Callable
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
HERE = Path(__file__).parent
SETLKW, WRLCK, UNLCK = 7, 1, 2
# Neighbours of this page may become dirty with it, in one large folio.
FIRST_PAGE = 3


@pytest.fixture
def recorded(spool, when_ready, tmp_path) -> Callable[[str], tuple[Path, str]]:
    """Return ``recorded(program)``: a trace from its line "ready" on, and its output."""

    def run(program: str) -> tuple[Path, str]:
        mount, output = spool("ext4"), tmp_path / "trace"
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        with subprocess.Popen([sys.executable, HERE / program, mount], **pipes) as process:
            assert process.stdout is not None
            assert process.stdin is not None
            assert process.stdout.readline() == "ready\n"
            tell = process.stdin

            def go_on() -> None:
                tell.write("go\n")
                tell.flush()

            when_ready(output, go_on)
            done = record(Request([mount], output, duration_s=3, keep_names=True))
            said = process.stdout.read()
        assert process.returncode == 0
        assert done.meta["complete"]
        return done.trace, said

    return run


def touched(trace: Path) -> set[int]:
    table = Trace.open(trace).table("faults")
    return {row["page"] for row in table.to_pylist() if row["write"]}


def test_held_again(recorded, tmp_path):
    trace, _ = recorded("start.py")

    def recorder(mount: Path, command: list[str], output: Path, _show: object) -> int:
        request = Request([mount], output, command=command, keep_names=True, snapshot="none")
        return record(request).command_status or 0

    names = {row["kind"] for row in Trace.open(trace).table("held_locks").to_pylist()}
    assert names == {"posix"}
    (row,) = replay(trace, ["ext4"], tmp_path / "out", recorder=recorder)
    run = Path(row["run"])
    assert row["executed"] == row["syscalls"], (run / "divergences.json").read_text()
    assert row["divergent"] == 0, (run / "divergences.json").read_text()
    assert row["final_state"]["mismatched"] == 0, row["final_state"]
    assert row["orders_given_up"] == 0
    build(Trace.open(trace), tmp_path / "plan")
    ops = read_plan(tmp_path / "plan").ops
    outcomes = pq.read_table(run / "outcomes.parquet").to_pylist()
    waited = (ops["cmd"] == SETLKW) & (ops["lock_type"] == WRLCK)
    (got,) = (outcomes[at] for at in np.flatnonzero(waited))
    (gave,) = (outcomes[at] for at in np.flatnonzero(ops["lock_type"] == UNLCK))
    assert got["issue_ns"] < gave["issue_ns"] < got["end_ns"]
    assert FIRST_PAGE in touched(trace)
    assert row["faults"]["touched"] == row["faults"]["recorded"]
    assert FIRST_PAGE in touched(run / "trace")


def test_leases_keep_out_who_opens_the_file(recorded, tmp_path):
    trace, said = recorded("leases.py")
    told = [int(line) for line in said.splitlines()]
    held = Trace.open(trace).table("held_locks").to_pylist()
    assert [(row["kind"], row["exclusive"]) for row in held] == [("lease", True)]
    for pace in ("afap", "original"):
        (row,) = replay(trace, ["ext4"], tmp_path / pace, pace=pace)
        run = Path(row["run"])
        assert row["executed"] == row["syscalls"], (run / "divergences.json").read_text()
        assert row["divergent"] == 0, (run / "divergences.json").read_text()
    # The last one was at the recorded pace.
    calls = Trace.open(trace).table("syscalls").to_pylist()
    opens = [at for at, c in enumerate(calls) if c["syscall"] == "openat" and c["dur_ns"] > 2e8]
    assert len(opens) == len(told) == 2
    made = {row["call"]: row for row in pq.read_table(run / "outcomes.parquet").to_pylist()}
    for at, program_ns in zip(opens, told, strict=True):
        took_ns = made[at]["end_ns"] - made[at]["issue_ns"]
        print(f"program {program_ns} recorded {calls[at]['dur_ns']} replayed {took_ns}")
        # The kernel asks the holder as soon as the file is opened: only the holder ends the wait.
        assert 3e8 < calls[at]["dur_ns"] <= program_ns
        assert took_ns > 2e8
