"""Recordings in several traces hold the same calls as one trace: none lost, none twice."""

import json
import subprocess
import sys
import time
from pathlib import Path

import duckdb
import pytest

from spoolscope.tracers.request import Limit
from spoolscope.tracers.session import Request, record
from spoolscope.traces.recording import CAPTURES, Recording
from spoolscope.traces.trace import Trace

pytestmark = [pytest.mark.root, pytest.mark.steady]

SPOOLSCOPE = [sys.executable, "-m", "spoolscope.cli.main"]

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
    """Return the command, which prints one object of counts by tid per process."""
    script = tmp_path / "work.py"
    script.write_text(WORK)
    return ["sh", "-c", f"{sys.executable} {script} {mount} {seconds} > {tmp_path}/said"]


def counted(tmp_path: Path) -> dict[int, int]:
    """Return the program's counts by tid; those of a reused tid are added up."""
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
    metas = [Trace.open(trace).meta for trace in traces]
    lacks = [
        {key: meta.get(key) for key in ("complete", "lost", "loss", "ended")} for meta in metas
    ]
    assert summary.meta["complete"], lacks
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
    # A call waited over all the borders: its absences are in the trace that has the call.
    [(dur, blocked, named)] = ask(
        traces,
        "SELECT max_by(dur_ns, dur_ns), max_by(blocked_ns, dur_ns), (SELECT max(dur_ns)"
        " FROM segments WHERE state = 'blocked') FROM syscalls WHERE syscall = 'fcntl'",
    )
    assert dur > 2.5e9
    assert named == blocked
    # Every trace is complete in itself: its calls have names, its threads an owner.
    for trace in traces:
        assert Trace.open(trace).meta["paths_unresolved"] == 0


def test_only_the_newest_are_kept_and_size_begins_a_new_one(spool, tmp_path):
    mount, output = spool("xfs"), tmp_path / "rec"
    summary = record(
        Request(
            spools=[mount],
            output=output,
            command=work(mount, tmp_path, 3),
            rotate=Limit(size_bytes=30_000),
            keep=2,
        )
    )
    recording = Recording.open(output)
    names = [trace.name for trace in recording.traces()]
    segments = [meta["segment"] for _, meta in recording.described()]
    assert len(names) == 2
    assert segments[1] == segments[0] + 1 >= 3
    assert summary.meta["complete"]
    assert not (output / CAPTURES).exists()
    shown = spoolscope("info", output)
    assert shown.returncode == 0
    assert "2 traces" in shown.stdout
    refused = spoolscope("explain", output)
    assert refused.returncode == 2
    assert f"e.g. {recording.traces()[-1]}" in refused.stderr


def test_a_killed_front_end_leaves_segments_that_are_recovered(spool, tmp_path):
    """The recorder ends in order; segments that were not converted become one trace."""
    mount, output = spool("ext4"), tmp_path / "rec"
    words = [*SPOOLSCOPE, "record", "-q", "--keep-names", "--spool", mount, "--rotate", "1s"]
    process = subprocess.Popen([*map(str, words), "-o", str(output)], start_new_session=True)
    answers = output / CAPTURES / "capture.json"
    _wait_for(lambda: answers.exists() and "ready" in answers.read_text())
    n = 0
    while len(list((output / CAPTURES).glob("*.seg"))) < 2 or n < 500:
        (mount / f"f{n}").touch()
        n += 1
    process.kill()
    process.wait()
    _wait_for(lambda: Recording.open(output).recorder() is None)
    _wait_for(lambda: not list(output.glob(".trace-*")))  # its last conversion ends, too
    _wait_for(lambda: not _running(process.pid))
    shown = spoolscope("info", output, "--json")
    facts = json.loads(shown.stdout)
    assert facts["segments_pending"] >= 1
    left = tmp_path / "left"
    assert (
        spoolscope("record", "-q", "--keep-names", "--recover", output, "-o", left).returncode == 0
    )
    assert Trace.open(left).meta["complete"]
    made = ask(
        [*Recording.open(output).traces(), left],
        "SELECT count(DISTINCT ino) FROM syscalls WHERE syscall = 'openat' AND ret >= 0"
        " AND obj_mode & 61440 = 32768",
    )
    assert made == [(n,)]


def _running(session: int) -> list[str]:
    """Return the commands of the processes of a session."""
    command = ["ps", "--no-headers", "-o", "args", "-s", str(session)]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.splitlines()


def _wait_for(what) -> None:
    deadline = time.monotonic() + 40
    while not what():
        assert time.monotonic() < deadline, "it did not come"
        time.sleep(0.05)


def spoolscope(*words: object) -> subprocess.CompletedProcess:
    command = [*SPOOLSCOPE, *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, check=False)
