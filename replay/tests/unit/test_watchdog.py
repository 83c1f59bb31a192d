"""Locks that take long, tasks that die and calls that do not return: each ends with a diagnosis."""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from spoolscope.replay.outcomes import VERDICTS, read_outcomes
from spoolscope.replay.plan import build
from spoolscope.replay.run import replay
from spoolscope.traces.errors import SpoolscopeError
from spoolscope.traces.native import find_binary
from spoolscope.traces.trace import Trace

pytestmark = pytest.mark.slow

CGROUPS = Path("/sys/fs/cgroup")
START = 1_700_000_000_000_000_000
REG = 0o100600
LOCK_EX, LOCK_UN = 2, 8


def started(
    script, tmp_path: Path, *words: str, target: Path | None = None
) -> subprocess.Popen[bytes]:
    """Start the engine on an empty target, in a session of its own."""
    build(Trace.open(script.write(tmp_path / "trace")), tmp_path / "plan")
    target = target or tmp_path / "target"
    target.mkdir()
    engine = [str(find_binary("spoolscope-replay")), "run", str(tmp_path / "plan")]
    places = ["--target", str(target), "--outcomes", str(tmp_path / "outcomes")]
    # A pipe would stay open as long as a task exists that cannot die.
    with (tmp_path / "told").open("w") as told:
        return subprocess.Popen(
            [*engine, *places, *words], stdout=subprocess.DEVNULL, stderr=told,
            start_new_session=True,
        )  # fmt: skip


def ended(engine: subprocess.Popen[bytes], tmp_path: Path) -> tuple[int, str]:
    """Return the exit code, and the messages."""
    return engine.wait(40), (tmp_path / "told").read_text()


def tasks(engine: int) -> list[int]:
    """Return the children of the engine."""
    children = Path(f"/proc/{engine}/task/{engine}/children").read_text()
    return [int(child) for child in children.split()]


def opened(script, tid: int, at: float, path: str = "a", ino: int = 1) -> None:
    script.call(tid, at, "openat", path, ret=3, flags=2, ino=ino, obj_mode=REG)


def locked(script, tid: int, at: float, cmd: int, **values) -> None:
    script.call(tid, at, "flock", "a", base=0, fd=3, cmd=cmd, ino=1, **values)


def verdicts(tmp_path: Path) -> list[str]:
    return [VERDICTS[v] for v in read_outcomes(tmp_path / "outcomes")["verdict"]]


def test_a_lock_that_took_as_long_in_the_recording_is_waited_for(script, tmp_path):
    script.entry("a", ino=1, mode=REG)
    for tid in (10, 11):
        opened(script, tid, tid - 9)
    locked(script, 10, 5, LOCK_EX)
    locked(script, 11, 10, LOCK_EX, dur_ms=1992)
    locked(script, 10, 2000, LOCK_UN)
    script.call(11, 2010, "mkdir", "made", mode=0o700)
    # It waits for the call above, and that for the lock: each for longer than the patience.
    script.call(12, 20, "stat", "made", obj_mode=0o040700, dur_ms=2000)
    engine = started(script, tmp_path, "--stall", "0.4")
    assert ended(engine, tmp_path) == (0, "")
    assert set(verdicts(tmp_path)) == {"same"}


def test_who_is_to_begin_later_is_waited_for(script, tmp_path):
    # It asks for the name longer than the patience before the process begins that makes it.
    script.call(10, 1, "stat", "made", obj_mode=0o040700, dur_ms=2500)
    script.thread(11, start_ns=START + 1_990_000_000)
    script.call(11, 2000, "mkdir", "made", mode=0o700)
    engine = started(script, tmp_path, "--stall", "0.4")
    assert ended(engine, tmp_path) == (0, "")
    assert set(verdicts(tmp_path)) == {"same"}


def test_who_is_to_be_forked_later_is_waited_for(script, tmp_path):
    script.call(10, 1, "stat", "made", obj_mode=0o040700, dur_ms=2500)
    script.call(11, 1, "stat", "x", ret=-2)
    script.fork(11, 12, 1900)
    script.call(12, 2000, "mkdir", "made", mode=0o700)
    engine = started(script, tmp_path, "--stall", "0.4")
    assert ended(engine, tmp_path) == (0, "")
    assert set(verdicts(tmp_path)) == {"same"}


def test_a_killed_task_is_named_and_the_others_go_on(script, tmp_path):
    for tid in (10, 11):
        script.call(tid, 1, "stat", "x", ret=-2)
        script.call(tid, 3000, "stat", "x", ret=-2)
    # It waits for a name that the dead task would have made.
    script.call(11, 3100, "mkdir", "made", mode=0o700)
    script.call(10, 3200, "stat", "made", obj_mode=0o040700)
    engine = started(script, tmp_path, "--stall", "0.4")
    deadline = time.monotonic() + 60
    while len(tasks(engine.pid)) < 2 and time.monotonic() < deadline:
        time.sleep(0.02)
    time.sleep(0.5)
    os.kill(tasks(engine.pid)[1], signal.SIGKILL)
    code, told = ended(engine, tmp_path)
    assert code == 1
    assert "task of thread 11 died (status 0x9)" in told
    # The dead task made one of its calls; the call that wanted its name did not find it.
    assert sorted(verdicts(tmp_path)) == ["diverged", "pending", "pending", "same", "same", "same"]


@contextmanager
def without_forks(name: str, require) -> Iterator[Callable[[list[int]], None]]:
    """Yield a function that puts processes into a control group in which no fork succeeds."""
    known = CGROUPS / "cgroup.subtree_control"
    if (CGROUPS / "pids" / "cgroup.procs").exists():
        place = CGROUPS / "pids"
    elif known.exists() and "pids" in known.read_text().split():
        place = CGROUPS
    else:
        require("pids", reason="no control group limits the number of tasks on this machine")
    group = place / name
    group.mkdir()

    def limit(pids: list[int]) -> None:
        (group / "pids.max").write_text("0")
        for pid in pids:
            (group / "cgroup.procs").write_text(str(pid))

    try:
        yield limit
    finally:
        group.rmdir()


def first_tasks(engine: int) -> list[int]:
    """Wait until the engine has children; return them."""
    deadline = time.monotonic() + 60
    while not (found := tasks(engine)) and time.monotonic() < deadline:
        time.sleep(0.02)
    return found


@pytest.mark.root
def test_a_fork_that_fails_leaves_nobody_waiting(script, tmp_path, require):
    script.call(10, 1, "stat", "x", ret=-2)
    script.fork(10, 11, 1000)
    script.call(11, 1010, "mkdir", "made", mode=0o700)
    script.call(10, 1100, "stat", "made", obj_mode=0o040700)
    with without_forks(tmp_path.name, require) as limit:
        engine = started(script, tmp_path)
        try:
            limit([engine.pid, *first_tasks(engine.pid)])
            assert ended(engine, tmp_path) == (0, "")
        finally:
            engine.kill()
            engine.wait()
    assert sorted(verdicts(tmp_path)) == ["diverged", "diverged", "pending", "same"]


@pytest.mark.root
def test_what_was_done_is_kept_when_a_replay_cannot_go_on(script, tmp_path, require):
    script.call(10, 1, "stat", "x", ret=-2)
    script.call(10, 3000, "stat", "x", ret=-2)
    script.thread(11, start_ns=START + 2_990_000_000)
    script.call(11, 3000, "stat", "x", ret=-2)
    trace, out = script.write(tmp_path / "trace"), tmp_path / "out"
    (tmp_path / "target").mkdir()
    with without_forks(tmp_path.name, require) as limit:

        def limited(_mount: Path, command: list[str], _output: Path, _show: object) -> int:
            with subprocess.Popen(command) as engine:
                first_tasks(engine.pid)
                limit([engine.pid])
                return engine.wait(40)

        with pytest.raises(SpoolscopeError, match="the replay was ended: cannot fork") as error:
            replay(trace, [f"dir:{tmp_path / 'target'}"], out, recorder=limited)
    [kept] = out.glob("*/outcomes.parquet")
    assert error.value.remedy == f"see what became of the 1 calls until then in {kept}"
    found = pq.read_table(kept)["verdict"].to_pylist()
    assert sorted(found) == ["pending", "pending", "same"]


@pytest.mark.root
def test_a_call_that_does_not_return_ends_the_replay_by_name(script, spool, tmp_path):
    script.call(10, 1, "mkdir", "first", mode=0o700)
    script.call(10, 1000, "mkdir", "made", mode=0o700)
    script.call(11, 1100, "stat", "made", obj_mode=0o040700)
    target = spool("ext4") / "target"
    engine = started(script, tmp_path, "--stall", "0.1", target=target)
    deadline = time.monotonic() + 60
    while not (target / "first").exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    members = tasks(engine.pid)
    subprocess.run(["fsfreeze", "--freeze", target.parent], check=True)
    try:
        # 30 times the patience, and what a killed task may take to die.
        code, told = ended(engine, tmp_path)
    finally:
        subprocess.run(["fsfreeze", "--unfreeze", target.parent], check=True)
    assert code == 1
    first, *_, last = told.splitlines()
    assert "nothing moves: thread 10 has been in mkdir(made) for 0 s" in first
    assert "nothing moves any more: thread 10 has been in mkdir(made) for 3 s" in last
    assert "1 threads wait for others" in last
    # Outcomes until then are kept; the other call stays pending.
    assert sorted(verdicts(tmp_path)) == ["pending", "pending", "same"]
    deadline = time.monotonic() + 60
    while any(Path(f"/proc/{task}").exists() for task in members) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(Path(f"/proc/{task}").exists() for task in members)
