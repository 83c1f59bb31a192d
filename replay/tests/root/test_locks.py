"""Six processes that spend their time waiting for locks: order and times of the locks."""

import errno
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from spoolscope.replay.run import replay
from spoolscope.tracers.session import Request, record
from spoolscope.traces.trace import Trace

pytestmark = pytest.mark.root
SOURCE = Path(__file__).with_name("locks.c")
ROUNDS = 300
LOCK_COMMANDS = (7, 38)  # F_SETLKW, F_OFD_SETLKW
UNLOCK = 2
# A holder keeps a lock for up to 1.5 ms: a call later than a few of these does not wait as long.
LATE_NS = 5_000_000
# On a quiet machine 99 of 100 sleeps end within that: the bounds below are then the plain ones.
QUIET_NS = 2_000_000


@pytest.fixture
def recorded(spool, tmp_path) -> tuple[Path, int]:
    """Return the trace, and the time in lock calls by the program's own clock, ns."""
    program, log, mount = tmp_path / "locks", tmp_path / "log", spool("ext4")
    subprocess.run(["cc", "-O1", "-Wall", "-Werror", "-o", program, SOURCE], check=True)
    log.mkdir()
    command = [str(program), str(mount), str(log), str(ROUNDS)]
    done = record(Request([mount], tmp_path / "trace", command=command))
    assert done.command_status == 0
    assert done.meta["complete"]
    lines = [line.split() for file in log.iterdir() for line in file.read_text().splitlines()]
    assert len(lines) == 6 * ROUNDS
    return done.trace, sum(int(wait) for _, _, wait in lines)


def asks(trace: Path) -> "np.ndarray":
    """Return which calls ask for a lock, and may wait."""
    calls = Trace.open(trace).table("syscalls", ["syscall", "cmd", "lock_type"])
    name, cmd, lock = (np.array(column.to_pylist(), object) for column in calls.columns)
    posix = np.isin(cmd, LOCK_COMMANDS) & (lock != UNLOCK)
    return posix | (name == "flock") & np.array([c is not None and not c & 8 for c in cmd])


def replayed(trace: Path, out: Path) -> dict[str, Any]:
    """Replay, and check all but the times."""
    (row,) = replay(trace, ["ext4"], out)
    listed = (Path(row["run"]) / "divergences.json").read_text()
    # Each process asks for the file's size under its lock: another order has other sizes.
    wrong = row["syscalls"] - row["executed"], row["divergent"], row["orders_given_up"]
    if any(wrong) or row["final_state"]["mismatched"]:
        pytest.fail(f"{wrong} {row['final_state']} {listed}")
    # A late call waits for another time, which the reasons must state.
    if row["lateness_p99_ns"] >= LATE_NS:
        told = row["certificate"]
        if told["verdict"] != "unfaithful" or "late" not in " ".join(told["reasons"]):
            pytest.fail(f"{row['lateness_p99_ns']} ns late: {told}")
    return row


def lasted_ns(row: dict[str, Any]) -> dict[int, int]:
    """Return how long each recorded call took in a replay."""
    file = Path(row["run"]) / "outcomes.parquet"
    outcomes = pq.read_table(file, columns=["call", "issue_ns", "end_ns"])
    call, issue, end = (column.to_pylist() for column in outcomes.columns)
    return {c: e - i for c, i, e in zip(call, issue, end, strict=True) if c is not None}


SLEEPER = """
import select, time
due, late = time.monotonic_ns(), []
while not select.select([0], [], [], 0)[0]:
    due += 2_000_000
    time.sleep(max(due - time.monotonic_ns(), 0) / 1e9)
    late.append(time.monotonic_ns() - due)
print(sorted(late)[len(late) * 99 // 100])
"""


@contextmanager
def sleeping() -> Iterator[list[int]]:
    """Yield a list that gets how late a process wakes that only sleeps: 99th percentile, ns."""
    late = []
    command, pipe = [sys.executable, "-S", "-c", SLEEPER], subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as sleeper:
        yield late
        late.append(int(sleeper.communicate("\n")[0]))


# A replay is late if other programs have the machine.
@pytest.mark.times
def test_waits_for_locks_are_those_of_the_recording(recorded, tmp_path):
    trace, by_program_ns = recorded
    asked = asks(trace)
    assert asked.sum() == 6 * ROUNDS
    durations = Trace.open(trace).table("syscalls", ["dur_ns"])["dur_ns"].to_numpy()
    waited_ns = int(durations[asked].sum())
    assert 0.9 * by_program_ns < waited_ns <= by_program_ns
    with sleeping() as by_machine_ns:
        row = replayed(trace, tmp_path / "out")
    made = lasted_ns(row)
    again_ns = sum(made[at] for at in np.flatnonzero(asked).tolist())
    share = [waited_ns / durations.sum(), again_ns / sum(made.values())]
    late = row["lateness_p99_ns"], by_machine_ns[0]
    print(f"program {by_program_ns} recorded {waited_ns} replayed {again_ns} {share} {late}")
    # Where every sleeper wakes late, six threads that wait for each other do so all the more.
    assert row["lateness_p99_ns"] < max(LATE_NS, 4 * by_machine_ns[0])
    assert 0.9 < share[1] / share[0] < 1.1
    # A call that comes later waits for less.
    excess_ns = max(by_machine_ns[0] - QUIET_NS, 0)
    assert again_ns == pytest.approx(waited_ns, rel=0.1 + excess_ns / 50_000_000)


@pytest.mark.parametrize("pace", ["afap", "original"])
def test_what_exit_and_exec_give_up_can_be_had_at_once_and_nothing_else(spool, tmp_path, pace):
    mount = spool("ext4")
    command = [sys.executable, str(Path(__file__).with_name("exits.py")), str(mount)]
    done = record(Request([mount], tmp_path / "trace", command=command))
    assert done.command_status == 0  # the program had every lock
    (row,) = replay(done.trace, ["ext4"], tmp_path / "out", pace=pace)
    listed = (Path(row["run"]) / "divergences.json").read_text()
    assert row["executed"] == row["syscalls"], listed
    assert row["divergent"] == 0, listed


@pytest.mark.parametrize("pace", ["afap", pytest.param("original", marks=pytest.mark.times)])
def test_an_alarm_ends_the_sleep_for_a_lock_again(spool, tmp_path, pace):
    """Dovecot gives up an mbox like this; earlier 30 of its 86 s of sleep were left out."""
    mount, log = spool("ext4"), tmp_path / "log"
    program = Path(__file__).with_name("alarms.py")
    command = [sys.executable, str(program), str(mount), str(log)]
    done = record(Request([mount], tmp_path / "trace", command=command))
    assert done.command_status == 0  # no sleeper had the lock
    by_program_ns = [int(line) for line in log.read_text().split()]
    errors = Trace.open(done.trace).table("syscalls", ["errno"])["errno"].to_pylist()
    interrupted = [at for at, error in enumerate(errors) if error == errno.EINTR]
    assert len(interrupted) == len(by_program_ns) == 8
    (row,) = replay(done.trace, ["ext4"], tmp_path / "out", pace=pace)
    listed = (Path(row["run"]) / "divergences.json").read_text()
    assert row["executed"] == row["syscalls"], listed
    assert row["divergent"] == 0, listed
    made = lasted_ns(row)
    again_ns = [made[at] for at in interrupted]
    if pace == "afap":
        assert sum(again_ns) < sum(by_program_ns) / 4
    else:
        assert sum(again_ns) == pytest.approx(sum(by_program_ns), rel=0.1)
        # No process released a lock later, or asked later, because of the sleeper.
        waited = row["certificate"]["lateness"]["parts"]["dependencies"]
        assert waited["max_ns"] < 25_000_000, waited
