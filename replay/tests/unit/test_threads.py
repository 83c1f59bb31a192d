"""What threads of one process share, and what their children get of it."""

import subprocess
from pathlib import Path

import pytest

from spoolscope.replay.engine import Engine
from spoolscope.replay.outcomes import read_outcomes
from spoolscope.replay.plan import build
from spoolscope.traces.native import find_binary
from spoolscope.traces.trace import Trace

REG, DIR = 0o100600, 0o040755
CREATE = 0o301
SAME = 1


@pytest.fixture
def target(tmp_path) -> Path:
    path = tmp_path / "target"
    path.mkdir()
    return path


def execute(script, tmp_path: Path, target: Path, pace: str = "original"):
    """Run the engine alone; return the outcomes, and how the target differs from the trace."""
    plan, outcomes = tmp_path / "plan", tmp_path / "outcomes"
    build(Trace.open(script.write(tmp_path / "trace")), plan)
    words = [find_binary("spoolscope-replay"), "run", plan, "--target", target, "--pace", pace]
    subprocess.run([*words, "--outcomes", outcomes], check=True)
    return read_outcomes(outcomes), Engine(plan).verify(target)


def creates(script, tid: int, at: float, name: str, **values) -> None:
    script.call(tid, at, "openat", name, flags=CREATE, mode=0o666, obj_size=0, **values)


def test_threads_there_at_start_share_working_directory_and_umask(script, tmp_path, target):
    script.entry("d", ino=3, mode=DIR)
    script.thread(10, umask=0o022)
    script.thread(11, pid=10, umask=0o077)  # as its first call finds it
    script.call(11, 0.5, "stat", "none", ret=-2)
    script.call(10, 1, "umask", ret=0o022, mode=0o077)
    script.call(10, 2, "chdir", "d")
    creates(script, 11, 3, "d/made", ret=4, ino=6, obj_mode=REG, base=2)
    found, state = execute(script, tmp_path, target)
    assert (found["verdict"] == SAME).all()
    assert state["mismatched"] == 0, state["examples"]


def test_a_thread_does_not_set_the_umask_of_its_process_at_birth(script, tmp_path, target):
    script.thread(10, umask=0o022)
    script.fork(10, 11, 1, shares_fs=True, shares_files=True, umask=0o077)
    script.threads[11]["pid"] = 10
    creates(script, 10, 2, "a", ret=3, ino=5, obj_mode=0o100644)
    script.call(10, 3, "umask", ret=0o022, mode=0o077)
    creates(script, 11, 4, "b", ret=4, ino=6, obj_mode=REG)
    found, state = execute(script, tmp_path, target)
    assert (found["verdict"] == SAME).all()
    assert state["mismatched"] == 0, state["examples"]
