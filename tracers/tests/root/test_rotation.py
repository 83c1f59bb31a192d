"""Recordings in several traces hold the same calls as one: none lost, none twice."""

import json
import sys
from pathlib import Path

import duckdb
import pytest

from spoolscope.tracers.request import Limit
from spoolscope.tracers.session import Request, record
from spoolscope.traces.recording import Recording
from spoolscope.traces.trace import Trace

pytestmark = pytest.mark.root

# Four processes with two threads each; every thread counts the calls that it makes itself.
# One thread holds a lock over the first border; the other processes come and go.
WORK = """
import fcntl, json, os, sys, threading, time
spool, seconds = sys.argv[1], float(sys.argv[2])
end = time.monotonic() + seconds
counts = {}
def loop(name, end):
    tid, n, i = threading.get_native_id(), 0, 0
    while time.monotonic() < end:
        path = f"{spool}/{name}.{tid}.{i % 50}"
        fd = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)
        os.write(fd, b"x" * 100)
        if i % 20 == 0:
            os.fsync(fd)
            n += 1
        os.close(fd)
        os.rename(path, path + "x")
        n += 4
        i += 1
    counts[tid] = n
def long_call():
    fd = os.open(f"{spool}/lock", os.O_RDWR)
    fcntl.lockf(fd, fcntl.LOCK_EX)
    counts[threading.get_native_id()] = 2
def work(name, end):
    threads = [threading.Thread(target=loop, args=(f"{name}{i}", end)) for i in range(2)]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
    print(json.dumps(counts), flush=True)
    os._exit(0)
fd = os.open(f"{spool}/lock", os.O_RDWR | os.O_CREAT)
fcntl.lockf(fd, fcntl.LOCK_EX)
children = []
for name in range(3):
    child = os.fork()
    if not child:
        work(name, end)
    children.append(child)
waiter = os.fork()
if not waiter:
    long_call()
    print(json.dumps(counts), flush=True)
    os._exit(0)
while time.monotonic() < end:
    child = os.fork()
    if not child:
        work("short", time.monotonic() + 0.05)
    os.waitpid(child, 0)
os.close(fd)
for child in [waiter, *children]:
    os.waitpid(child, 0)
"""


def work(mount: Path, tmp_path: Path, seconds: float) -> list[str]:
    """Return the command: it prints one object of counts by tid per process."""
    script = tmp_path / "work.py"
    script.write_text(WORK)
    return ["sh", "-c", f"{sys.executable} {script} {mount} {seconds} > {tmp_path}/said"]


def counted(tmp_path: Path) -> dict[int, int]:
    """Return what the program says: calls by tid. A tid given out again adds up."""
    counts: dict[int, int] = {}
    for line in (tmp_path / "said").read_text().splitlines():
        for tid, n in json.loads(line).items():
            counts[int(tid)] = counts.get(int(tid), 0) + n
    return {tid: n for tid, n in counts.items() if n}


MADE = "('openat', 'write', 'close', 'fsync', 'rename', 'fcntl')"


def ask(traces: list[Path], sql: str) -> list[tuple]:
    connection = duckdb.connect()
    for table in ("syscalls", "segments", "threads"):
        files = [str(trace / f"{table}.parquet") for trace in traces]
        connection.execute(
            f"CREATE VIEW {table} AS SELECT * FROM read_parquet({files}, filename=1)"
        )
    return connection.execute(sql).fetchall()


@pytest.mark.parametrize("fstype", ["ext4"])
def test_nothing_is_lost_at_a_border(fstype, spool, tmp_path):
    mount, output = spool(fstype), tmp_path / "rec"
    summary = record(
        Request(
            spools=[mount],
            output=output,
            command=work(mount, tmp_path, 3),
            keep_names=True,
            rotate=Limit(age_s=0.5),
        )
    )
    assert summary.command_status == 0
    traces = Recording.open(output).traces()
    assert len(traces) >= 3
    assert [Trace.open(trace).meta["segment"] for trace in traces] == [*range(1, len(traces) + 1)]
    assert summary.meta["complete"], [Trace.open(trace).meta for trace in traces]
    assert summary.meta["lost"] == 0
    # Exactly the calls that the program counted, thread by thread ...
    theirs = counted(tmp_path)
    rows = ask(
        traces,
        f"SELECT tid, count(*) FROM syscalls WHERE syscall IN {MADE} AND path_id >= 0 GROUP BY 1",
    )
    ours = {tid: n for tid, n in rows if tid in theirs}
    assert ours == theirs
    # ... and no number of a thread twice or missing, over all borders.
    holes = ask(
        traces,
        "SELECT tid, count(*), count(DISTINCT seq), max(seq) - min(seq) + 1 FROM syscalls"
        f" WHERE tid IN {tuple(theirs)} GROUP BY 1",
    )
    assert [row for row in holes if not row[1] == row[2] == row[3]] == []
    # The call that waited over all the borders: its absences are in its own trace.
    [(dur, blocked, named)] = ask(
        traces,
        "SELECT max_by(dur_ns, dur_ns), max_by(blocked_ns, dur_ns), (SELECT max(dur_ns)"
        " FROM segments WHERE state = 'blocked') FROM syscalls WHERE syscall = 'fcntl'",
    )
    assert dur > 2.5e9
    assert named == blocked
    # Every trace stands on its own: its calls have names, its threads an owner.
    for trace in traces:
        assert Trace.open(trace).meta["paths_unresolved"] == 0
