"""Resources that threads of one process share, and those that their children get."""

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from spoolscope.replay.plan import build
from spoolscope.traces.native import find_binary
from spoolscope.traces.trace import Trace

REG, DIR = 0o100600, 0o040755
CREATE = 0o301
SAME = 1


def creates(script, tid: int, at: float, name: str, **values) -> None:
    script.call(tid, at, "openat", name, flags=CREATE, mode=0o666, obj_size=0, **values)


def test_threads_there_at_start_share_working_directory_and_umask(script, execute, target):
    script.entry("d", ino=3, mode=DIR)
    script.thread(10, umask=0o022)
    script.thread(11, pid=10, umask=0o077)  # as its first call finds it
    script.call(11, 0.5, "stat", "none", ret=-2)
    script.call(10, 1, "umask", ret=0o022, mode=0o077)
    script.call(10, 2, "chdir", "d")
    creates(script, 11, 3, "d/made", ret=4, ino=6, obj_mode=REG, base=2)
    found, state = execute(script, target, pace="original")
    assert (found["verdict"] == SAME).all()
    assert state["mismatched"] == 0, state["examples"]


def test_a_thread_does_not_set_the_umask_of_its_process_at_birth(script, execute, target):
    script.thread(10, umask=0o022)
    script.fork(10, 11, 1, shares_fs=True, shares_files=True, umask=0o077)
    script.threads[11]["pid"] = 10
    creates(script, 10, 2, "a", ret=3, ino=5, obj_mode=0o100644)
    script.call(10, 3, "umask", ret=0o022, mode=0o077)
    creates(script, 11, 4, "b", ret=4, ino=6, obj_mode=REG)
    found, state = execute(script, target, pace="original")
    assert (found["verdict"] == SAME).all()
    assert state["mismatched"] == 0, state["examples"]


def test_children_have_what_other_threads_had_opened_and_not_closed_yet(script, execute, target):
    """One thread opens and closes files; the other one forks children, which use them."""
    script.entry("f", ino=7, mode=REG, size=100)
    file = {"ino": 7, "obj_mode": REG, "obj_size": 100}
    script.thread(10)
    script.thread(11, pid=10)
    for child in range(40):
        at = 10 * child
        script.call(11, at + 1, "openat", "f", ret=3, flags=0, **file)
        script.fork(10, 100 + child, at + 2)
        script.call(11, at + 3, "close", "f", base=0, fd=3, ino=7)
        script.call(100 + child, at + 4, "read", "f", ret=10, base=0, fd=3, size=10, offset=0,
                    **file)  # fmt: skip
        script.event("exit", 100 + child, at + 5)
    found, _ = execute(script, target)
    assert (found["verdict"] == SAME).all()


def test_a_fork_has_descriptors_and_their_numbers_as_they_belong_together(script, execute, target):
    """A file that another thread opens during a fork must not replace the child's output."""
    script.thread(10)
    script.thread(11, pid=10)
    for number in range(3000):
        busy = {"ino": 9000, "obj_mode": REG, "obj_size": 0}
        script.call(11, 0.1 * number + 1, "openat", "busy", ret=6, flags=0o2000101, mode=0o600,
                    dur_ms=0.05, **busy)  # fmt: skip
        script.call(11, 0.1 * number + 1.06, "close", "busy", base=0, fd=6, ino=9000, dur_ms=0.03)
    for number in range(100):
        at, child = 3 * number + 1, 100 + number
        out = {"ino": 1000 + number, "obj_mode": REG}
        script.call(10, at, "openat", f"o{number}", ret=5, flags=0o2000301, mode=0o600, obj_size=0,
                    **out)  # fmt: skip
        script.fork(10, child, at + 0.5)
        script.call(child, at + 1, "dup2", f"o{number}", ret=1, base=0, fd=5, fd2=1, **out)
        script.event("exec", child, at + 1.5)
        script.call(child, at + 2, "write", f"o{number}", ret=9, base=0, fd=1, size=9, offset=0,
                    obj_size=9, **out)  # fmt: skip
        script.event("exit", child, at + 2.5)
        script.call(10, at + 2.6, "close", f"o{number}", base=0, fd=5, ino=1000 + number)
    found, state = execute(script, target, pace="scaled=3")
    assert (found["verdict"] == SAME).all()
    assert state["mismatched"] == 0, state["examples"]


@contextmanager
def begun(script, tmp_path: Path, target: Path) -> Iterator["subprocess.Popen[str]"]:
    plan = tmp_path / "plan"
    build(Trace.open(script.write(tmp_path / "trace")), plan)
    words = [find_binary("spoolscope-replay"), "run", plan, "--target", target]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(words, text=True, start_new_session=True, **pipes) as engine:
        try:
            yield engine
        finally:
            engine.kill()


def tasks(engine: "subprocess.Popen[str]") -> dict[int, tuple[str, int]]:
    """Return state and parent of every process that an engine began."""
    found = {}
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, parent, _, session, *_ = status.read_text().rsplit(")", 1)[1].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if int(session) == engine.pid != int(status.parent.name):
            found[int(status.parent.name)] = (state, int(parent))
    return found


def test_children_of_threaded_processes_are_gone_when_they_end(script, tmp_path, target):
    script.thread(10)
    script.thread(11, pid=10)
    script.call(11, 0.5, "stat", "none", ret=-2)
    for child in range(100, 300):
        script.fork(10, child, child)
        script.call(child, child + 0.3, "stat", "none", ret=-2)
        script.event("exit", child, child + 0.6)
    script.call(10, 1500, "stat", "none", ret=-2)
    most = 0
    with begun(script, tmp_path, target) as engine:
        while engine.poll() is None:
            states = [state for state, _ in tasks(engine).values()]
            most = max(most, states.count("Z"))
            time.sleep(0.05)
    assert engine.returncode == 0
    assert most < 20


def test_a_child_of_a_threaded_process_that_dies_is_missed(script, tmp_path, target):
    script.thread(10)
    script.thread(11, pid=10)
    script.call(11, 0.5, "stat", "none", ret=-2)
    script.fork(10, 12, 1)
    script.call(12, 1500, "mkdir", "d", mode=0o700)
    script.call(10, 1600, "stat", "d", ino=5, obj_mode=0o040700)
    with begun(script, tmp_path, target) as engine:
        child: list[int] = []
        while not child and engine.poll() is None:
            known = tasks(engine)
            child = [pid for pid, (_, parent) in known.items() if parent in known]
        os.kill(child[0], signal.SIGKILL)
        _, said = engine.communicate(timeout=30)
    assert engine.returncode == 1
    assert "the task of thread 12 died" in said
