"""Injected waits for locks and pages, whose length and culprit are known."""

import sys
from pathlib import Path

import pytest
from clocks import alike, compares_times
from journals import device_of
from recordings import ask, recorded

from spoolscope.traces.trace import Trace

pytestmark = [pytest.mark.root, compares_times]
HOLD_NS = 300_000_000


def run(mount: Path, tmp_path: Path, program: str) -> Trace:
    """Record a program of one process; its arguments are the mount and the time to hold a lock."""
    command = [sys.executable, "-S", "-c", program, str(mount), str(HOLD_NS)]
    return recorded(mount, tmp_path, command)


def numbers(capfd) -> dict[str, int]:
    """Return the program's "word number" lines."""
    lines = [line.split() for line in capfd.readouterr().out.splitlines()]
    return {w[0]: int(w[1]) for w in lines if len(w) == 2 and w[1].isdigit()}


# A child holds a lock for a known time while the parent asks for it, once for each kind.
FILE_LOCKS = """
import fcntl, os, sys, time
mount, hold = sys.argv[1], int(sys.argv[2])
fd = os.open(f"{mount}/box", os.O_CREAT | os.O_RDWR)
print("ino", os.fstat(fd).st_ino)
for name, lock in (("flock", fcntl.flock), ("posix", fcntl.lockf)):
    there, told = os.pipe()
    if not (kid := os.fork()):
        own = os.open(f"{mount}/box", os.O_RDWR)
        lock(own, fcntl.LOCK_EX)
        os.write(told, b"x")
        time.sleep(hold / 1e9)
        os._exit(0)
    os.read(there, 1)
    begin = time.monotonic_ns()
    lock(fd, fcntl.LOCK_EX)
    print(f"{name}_waited", time.monotonic_ns() - begin)
    print(f"{name}_holder", kid, flush=True)
    os.waitpid(kid, 0)
"""


def test_a_file_lock_and_the_process_that_holds_it(spool, tmp_path, capfd):
    trace = run(spool("ext4"), tmp_path, FILE_LOCKS)
    said = numbers(capfd)
    found = ask(
        trace,
        "SELECT w.kind, object, w.ino, w.dur_ns, owner_pid, owner_tid, syscall FROM waits w"
        " JOIN syscalls s USING (tid, seq) WHERE w.kind IN ('flock', 'posix_lock')"
        " ORDER BY w.ts_ns",
    )
    assert [(row[0], *row[4:]) for row in found] == [
        ("flock", said["flock_holder"], None, "flock"),
        ("posix_lock", said["posix_holder"], None, "fcntl"),
    ]
    for _, what, ino, waited, *_ in found:
        assert (what, ino) == ("inode", said["ino"])
        alike("hold", HOLD_NS, waited, rel=0.1)  # if not, one of the two was late
    alike("flock", said["flock_waited"], found[0][3], rel=0.02)
    alike("fcntl", said["posix_waited"], found[1][3], rel=0.02)


# One large write holds the inode's lock; another process writes one byte at the same time.
INODE_LOCK = """
import os, sys, time
mount = sys.argv[1]
fd = os.open(f"{mount}/box", os.O_CREAT | os.O_RDWR)
data = bytes(200 << 20)
print("ino", os.fstat(fd).st_ino, flush=True)
if not (kid := os.fork()):
    os.write(fd, data)
    os._exit(0)
own = os.open(f"{mount}/box", os.O_RDWR)
while not os.fstat(own).st_size:
    pass
begin = time.monotonic_ns()
os.pwrite(own, b"x", 0)
print("waited", time.monotonic_ns() - begin)
print("holder", kid, flush=True)
os.waitpid(kid, 0)
"""


@pytest.mark.parametrize("fstype", ["ext4", "xfs", "btrfs"])
def test_the_lock_of_an_inode_and_the_call_that_holds_it(spool, tmp_path, capfd, fstype):
    trace = run(spool(fstype), tmp_path, INODE_LOCK)
    said = numbers(capfd)
    [(kind, what, ino, dev, waited, owner, comm, shares, call, size)] = ask(
        trace,
        """SELECT w.kind, object, w.ino, w.dev, w.dur_ns, owner_tid, owner_comm, owner_shares,
                  o.syscall, o.size
           FROM waits w JOIN syscalls s ON s.tid = w.tid AND s.seq = w.seq
           LEFT JOIN syscalls o ON o.tid = w.owner_tid AND o.seq = w.owner_seq
           WHERE s.syscall = 'pwrite64' AND w.kind LIKE 'rwsem%' AND object = 'inode'""",
    )
    assert (kind, what, ino) == ("rwsem_write", "inode", said["ino"])
    assert dev == trace.meta["spools"][0]["dev"]
    assert (owner, shares, call, size) == (said["holder"], False, "write", 200 << 20)
    assert comm.startswith("python")
    alike("inode", said["waited"], waited, rel=0.1)


DIRTY = """
import os, sys, time
fd = os.open(f"{sys.argv[1]}/box", os.O_CREAT | os.O_WRONLY)
data = bytes(1 << 20)
def elapsed():
    ran, waited, _ = open("/proc/self/schedstat").read().split()
    return time.monotonic_ns(), int(ran), int(waited)
before = elapsed()
for _ in range(128):
    os.write(fd, data)
wrote, ran, waited = (after - begin for after, begin in zip(elapsed(), before))
print("waited", waited)
print("slept", wrote - ran - waited, flush=True)
"""


def test_pauses_for_too_many_dirty_pages(spool, require, tmp_path, capfd):
    mount = spool("ext4")
    _, dev = device_of(mount)
    knobs = Path(f"/sys/class/bdi/{dev >> 20}:{dev & 0xFFFFF}")
    if not (knobs / "strict_limit").exists():
        require("strict_limit", reason="this kernel limits dirty pages only for the whole machine")
    (knobs / "max_bytes").write_text(str(8 << 20))
    (knobs / "strict_limit").write_text("1")
    trace = run(mount, tmp_path, DIRTY)
    said = numbers(capfd)
    [(n, paused)] = ask(
        trace,
        "SELECT count(*), sum(waits.dur_ns) FROM waits JOIN syscalls USING (tid, seq)"
        " WHERE waits.kind = 'dirty_limit' AND syscall = 'write'",
    )
    # A pause lasts until the task runs again.
    [(blocked, ready)] = ask(
        trace, "SELECT sum(blocked_ns), sum(runq_ns) FROM syscalls WHERE syscall = 'write'"
    )
    assert n > 0
    # The program did nothing but write: its sleeps, by the kernel's own account, are pauses.
    assert 0.8 * said["slept"] < paused < 1.01 * (said["slept"] + said["waited"])
    assert 0.8 * blocked < paused < 1.2 * blocked + ready


def test_nobody_outside_a_traced_call_is_recorded(spool, tmp_path):
    """Locks on another filesystem, by the recorded program itself, leave no row."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    program = FILE_LOCKS.replace("mount, hold = sys.argv[1]", f"mount, hold = {str(elsewhere)!r}")
    trace = run(spool("ext4"), tmp_path, program)
    assert ask(trace, "SELECT count(*) FROM waits WHERE kind IN ('flock', 'posix_lock')") == [(0,)]
