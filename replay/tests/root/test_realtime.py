"""Real-time priority, by /proc and ionice: only on request, and while CPUs are to spare."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from spoolscope.replay.pace import parse_pace
from spoolscope.replay.plan import build
from spoolscope.traces.native import find_binary
from spoolscope.traces.trace import Trace

pytestmark = pytest.mark.root
# Indices of fields of /proc/PID/stat after the name of the command, which may hold spaces.
REALTIME_PRIORITY, POLICY = 40 - 3, 41 - 3


def scheduled(pid: int) -> tuple[int, int]:
    """Return the policy of a process and its real-time priority."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[POLICY]), int(fields[REALTIME_PRIORITY])


def ionice(pid: int) -> str:
    done = subprocess.run(["ionice", "-p", str(pid)], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def eventually(what: Callable[[], bool], within_s: float = 10) -> None:
    deadline = time.monotonic() + within_s
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@contextmanager
def replayed(
    script, tmp_path: Path, *words: str, begun_by: Sequence[str] = ()
) -> Iterator[tuple[int, int]]:
    """Yield the process ids of an engine and of its task, which makes a call every 5 ms."""
    for n in range(6_000):
        script.call(10, 5 * n, "mkdir", f"d{n}", mode=0o700)
    build(Trace.open(script.write(tmp_path / "trace")), tmp_path / "plan")
    (tmp_path / "target").mkdir()
    engine = [find_binary("spoolscope-replay"), "run", tmp_path / "plan", "--target"]
    command = [*begun_by, *engine, tmp_path / "target", *words]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        try:
            children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
            eventually(lambda: any((tmp_path / "target").iterdir()))
            yield process.pid, int(children.read_text())
        finally:
            process.terminate()


@contextmanager
def busy() -> Iterator[None]:
    """Leave no CPU idle."""
    loop = [sys.executable, "-c", "while True: pass"]
    hogs = [subprocess.Popen(loop) for _ in os.sched_getaffinity(0)]
    try:
        yield
    finally:
        for hog in hogs:
            hog.kill()
            hog.wait()


def test_tasks_have_the_priority_while_cpus_are_free(script, tmp_path):
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("one CPU: none can be left to others")
    with replayed(script, tmp_path, "--realtime") as (engine, task):
        eventually(lambda: scheduled(task) == (os.SCHED_RR, 1))
        assert scheduled(engine) == (os.SCHED_OTHER, 0)
        assert ionice(task) == "best-effort: prio 4"
        with busy():
            eventually(lambda: scheduled(task) == (os.SCHED_OTHER, 0))
        eventually(lambda: scheduled(task) == (os.SCHED_RR, 1))


@pytest.mark.parametrize(
    ("begun_by", "policy"),
    [((), (os.SCHED_OTHER, 0)), (("chrt", "--batch", "0"), (os.SCHED_BATCH, 0)),
     (("chrt", "--fifo", "3"), (os.SCHED_FIFO, 3))],
)  # fmt: skip
def test_without_being_asked_it_stays_as_it_was(script, tmp_path, begun_by, policy):
    with replayed(script, tmp_path, begun_by=begun_by) as (_, task):
        for _ in range(20):
            assert scheduled(task) == policy
            time.sleep(0.02)


def test_io_asked_for_by_ionice_keeps_its_priority(script, tmp_path):
    begun_by = ("ionice", "-c", "2", "-n", "6")
    with replayed(script, tmp_path, "--realtime", begun_by=begun_by) as (_, task):
        assert ionice(task) == "best-effort: prio 6"


def test_who_may_not_have_it_is_told(script, tmp_path):
    script.call(10, 0, "mkdir", "d", mode=0o700)
    build(Trace.open(script.write(tmp_path / "trace")), tmp_path / "plan")
    (tmp_path / "target").mkdir()
    words = [find_binary("spoolscope-replay"), "run", tmp_path / "plan", "--target"]
    words += [tmp_path / "target", *parse_pace("original", realtime=True).words()]
    refused = ["prlimit", "--rtprio=0:0", "setpriv", "--bounding-set", "-sys_nice,-sys_resource"]
    done = subprocess.run([*refused, *words], capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "replay as root, or without --realtime" in done.stderr
    assert not any((tmp_path / "target").iterdir())
