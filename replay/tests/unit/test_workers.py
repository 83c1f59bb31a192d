"""Jobs that another process could do, and reasons that tie a job to its own."""

import os

import pyarrow.parquet as pq
import pytest

from spoolscope.replay.outcomes import read_plan
from spoolscope.replay.plan import build
from spoolscope.replay.run import replay
from spoolscope.replay.workers import jobs_of, pool
from spoolscope.traces.errors import SpoolscopeError
from spoolscope.traces.trace import Trace

CREATES = os.O_CREAT | os.O_WRONLY
TURN = {"fd": 9, "cmd": 2}  # flock on a descriptor from before


def delivery(script, at_ms, name, fd=3, tid=10):
    """Make a file, write it and close it."""
    known = {"ino": int(at_ms) + 7, "obj_mode": 0o100600}
    script.call(tid, at_ms, "openat", name, ret=fd, flags=CREATES, mode=0o600, **known)
    script.call(tid, at_ms + 0.2, "write", name, ret=10, base=0, fd=fd, size=10, offset=0, **known)
    script.call(tid, at_ms + 0.4, "close", fd=fd)


def found(script, tmp_path):
    """Return the jobs that move, as the calls of each."""
    build(Trace.open(script.write(tmp_path / "trace")), tmp_path / "plan")
    plan = read_plan(tmp_path / "plan")
    starts = plan.ops["start_ns"]
    return [
        [round(int(starts[at]) / 1e6, 1) for at in job.ops]
        for jobs in jobs_of(plan).values()
        for job in jobs
    ]


def test_a_job_ends_at_a_pause_with_nothing_open(script, tmp_path):
    delivery(script, 10, "a")
    delivery(script, 10.6, "b")  # at once: the same job
    delivery(script, 20, "c")
    script.call(10, 30, "openat", "d", ret=3, flags=CREATES, mode=0o600, ino=99)
    script.call(10, 40, "close", fd=3)  # a pause with an open file ends no job
    jobs = [[10, 10.2, 10.4, 10.6, 10.8, 11.0], [20, 20.2, 20.4], [30, 40]]
    assert found(script, tmp_path) == jobs


def test_taking_turns_to_accept_ends_a_job_and_stays(script, tmp_path):
    delivery(script, 10, "a")
    script.call(10, 10.6, "flock", **TURN)
    script.call(10, 10.8, "flock", fd=9, cmd=8)
    delivery(script, 11, "b")
    assert found(script, tmp_path) == [[10, 10.2, 10.4], [11, 11.2, 11.4]]


def test_what_needs_its_process_stays(script, tmp_path):
    delivery(script, 10, "a")
    script.call(10, 20, "write", "old", ret=5, base=0, fd=8, size=5, offset=0)  # open before
    script.call(10, 30, "umask", ret=0o022, mode=0o077)  # not restored in this job
    script.call(10, 40, "umask", ret=0o077, mode=0)
    script.call(10, 40.2, "umask", ret=0, mode=0o077)  # balanced: it moves
    script.call(10, 50, "close_range", fd=3, fd2=9)  # descriptors after it are not followed
    delivery(script, 60, "b")
    assert found(script, tmp_path) == [[10, 10.2, 10.4], [40, 40.2]]


def test_one_job_is_no_worker_and_threads_keep_theirs(script, tmp_path):
    delivery(script, 10, "a", tid=10)
    script.thread(20)
    script.thread(21, pid=20)
    for at_ms, tid in ((10, 20), (20, 20), (30, 21), (40, 21)):
        delivery(script, at_ms + 1, f"b{at_ms}", tid=tid)
    assert found(script, tmp_path) == []
    with pytest.raises(SpoolscopeError, match="no process of this trace has a job"):
        pool(tmp_path / "plan")


def test_a_worker_is_as_its_process_was(script, tmp_path):
    script.thread(10, uid=0, gid=0, umask=0o022)
    script.call(10, 1, "umask", ret=0o022, mode=0o077)
    script.call(10, 2.5, "setgid", arg=30 << 32)
    script.call(10, 2.7, "setuid", arg=25)
    delivery(script, 10, "a")
    build(Trace.open(script.write(tmp_path / "trace")), tmp_path / "plan")
    before = read_plan(tmp_path / "plan")
    entries, strings = len(before.entries), len(before.strings)
    told = pool(tmp_path / "plan")
    assert (told["workers"], told["processes"]) == (1, 1)
    after = read_plan(tmp_path / "plan")
    worker = after.threads[-1]
    assert [int(worker[name]) for name in ("uid", "gid", "umask")] == [25, 30, 0o077]
    assert int(worker["start_ns"]) == 10_000_000
    assert (len(after.entries), len(after.strings)) == (entries, strings)
    assert after.strings.raw(int(after.ops["path"][-3])) == b"a"


def test_jobs_are_done_by_processes_of_their_own(script, tmp_path, target):
    """The replay verifies that results and tree are the same; tids are the kernel's."""
    for number in range(4):
        delivery(script, 10 + 10 * number, f"m{number}")
    trace = script.write(tmp_path / "trace")
    tids = {}
    for workers in ("own", "pool"):
        place = target / workers
        place.mkdir()
        out = tmp_path / workers
        (row,) = replay(trace, [f"dir:{place}"], out, workers=workers)
        assert (row["divergent"], row["final_state"]["mismatched"]) == (0, 0), row["final_state"]
        assert bool(row["workers"]) == (workers == "pool")
        run = next(out.glob("*-r1"))
        made = pq.read_table(run / "outcomes.parquet", columns=["call", "tid"]).to_pylist()
        tids[workers] = {one["tid"] for one in made if one["call"] is not None}
    assert (len(tids["own"]), len(tids["pool"])) == (1, 4)
