"""Explanations of real recordings: sums, coverage, and deliberate causes."""

import subprocess

import pytest

from spoolscope.analysis.explain import explain
from spoolscope.analysis.stack_rules import shipped_rules
from spoolscope.analysis.study import study
from spoolscope.traces.trace import Trace

pytestmark = [pytest.mark.root, pytest.mark.steady]
FILESYSTEMS = ("ext4", "xfs", "btrfs")

# Four writers deliver, list, rename, link, unlink and append under a lock, as mail servers do.
MAILDIR = """
    import fcntl, os, sys
    os.chdir(sys.argv[1])
    for box in ("tmp", "new", "cur"):
        os.mkdir(box)
    def deliver(who):
        for i in range(60):
            name = f"{who}.{i}.host"
            fd = os.open(f"tmp/{name}", os.O_WRONLY | os.O_CREAT | os.O_EXCL)
            os.write(fd, b"x" * 6000); os.fsync(fd); os.close(fd)
            os.link(f"tmp/{name}", f"new/{name}"); os.unlink(f"tmp/{name}")
            os.rename(f"new/{name}", f"cur/{name}:2,S")
            os.listdir("cur")
            log = os.open("dovecot.index.log", os.O_RDWR | os.O_CREAT | os.O_APPEND)
            fcntl.lockf(log, fcntl.LOCK_EX)
            os.write(log, b"y" * 60); os.fdatasync(log); os.close(log)
            if i % 3 == 0:
                os.unlink(f"cur/{name}:2,S")
    children = []
    for who in range(4):
        pid = os.fork()
        if not pid:
            deliver(who); os._exit(0)
        children.append(pid)
    assert all(os.waitpid(pid, 0)[1] == 0 for pid in children)
"""


@pytest.mark.parametrize("fstype", FILESYSTEMS)
def test_every_nanosecond_has_a_cause(spool, recorded, fstype):
    found = explain(recorded(spool(fstype), MAILDIR))
    print(fstype, found.n_calls, found.causes, found.named_share, found.unknown[:3])
    assert found.split.sum_error_ns == 0
    assert found.split.segment_error_ns == 0
    assert found.split.without_segment_ns == 0
    assert sum(found.causes.values()) == found.latency_ns
    assert found.named_share >= 0.99
    assert found.remarks == []
    sync = found.by_syscall["fsync"].causes
    assert max(sync, key=sync.get) in {"journal_commit", "flush", "runq", "writeback"}
    assert sync["journal_commit"] > 0
    assert found.commits.n > 0
    assert found.commits.trigger_named >= 0.99 * found.commits.n
    blamed = {(row.syscall, row.path_class) for row in found.commits.blame}
    assert blamed & {("fsync", "message file in tmp"), ("fdatasync", "dovecot.index.log")}
    assert sum(row.others_ns for row in found.commits.blame) > 0
    assert found.cpu is not None
    assert sum(part.ns for part in found.cpu.classes) == found.causes["cpu"] == found.cpu.exact_ns
    assert all(part.low < 0.02 for part in found.cpu.classes if part.name == "other")


@pytest.mark.parametrize("fstype", ["ext2", "ext3", "ext4", "xfs", "btrfs"])
def test_every_row_adds_up(spool, recorded, check_every_row, fstype):
    assert check_every_row(Trace.open(recorded(spool(fstype), MAILDIR))) > 3000


HELD_LOCK = """
    import fcntl, os, sys, time
    fd = os.open(sys.argv[1] + "/lock", os.O_RDWR | os.O_CREAT)
    fcntl.flock(fd, fcntl.LOCK_EX)
    ready, go = os.pipe()
    if not os.fork():
        mine = os.open(sys.argv[1] + "/lock", os.O_RDWR)
        os.write(go, b"x")
        fcntl.flock(mine, fcntl.LOCK_EX)
        os._exit(0)
    os.read(ready, 1)
    time.sleep(0.4)
    fcntl.flock(fd, fcntl.LOCK_UN)
    os.wait()
"""


@pytest.mark.times
def test_a_held_lock_is_found_with_its_length(spool, recorded):
    found = explain(recorded(spool("ext4"), HELD_LOCK))
    assert found.causes["file_lock"] == pytest.approx(400e6, rel=0.05)
    assert found.filesystem_ns < 100e6


COLD = """
    import os, sys
    root = sys.argv[1] + "/box"
    for i in range(0, 3000, 7):
        os.stat(f"{root}/{i}.mail")
    os.listdir(root)
    with open(sys.argv[1] + "/big", "rb", buffering=0) as file:
        while file.read(1 << 16):
            pass
"""


@pytest.mark.times
@pytest.mark.parametrize("fstype", FILESYSTEMS)
def test_a_cold_cache_is_read_by_name_by_inode_and_by_data(spool, recorded, fstype):
    mount = spool(fstype)
    (mount / "box").mkdir()
    for i in range(3000):
        (mount / "box" / f"{i}.mail").write_bytes(b"x")
    (mount / "big").write_bytes(bytes(16 << 20))
    # A new mount empties every cache; drop_caches may keep dentries.
    subprocess.run(["umount", mount], check=True)
    image = mount.with_suffix(".img")
    subprocess.run(["mount", "-o", "loop,noatime", image, mount], check=True)
    found = explain(recorded(mount, COLD))
    print(fstype, {n: c.causes for n, c in found.by_syscall.items()}, found.unknown[:3])
    assert found.named_share >= 0.99
    looked_up = found.by_syscall["newfstatat"].causes
    assert looked_up.get("lookup_io", 0) + looked_up.get("inode_io", 0) > 0
    data = found.by_syscall["read"].causes
    assert data.get("block_device", 0) > 0
    assert not {"lookup_io", "readdir_io"} & set(data)
    reads = {"lookup_io", "inode_io", "readdir_io", "block_device"}
    blocked = found.split.blocked_ns
    assert sum(ns for cause, ns in found.causes.items() if cause in reads) > 0.9 * blocked


FIFO = """
    import os, sys, time
    path = sys.argv[1] + "/fifo"
    os.mkfifo(path)
    if not os.fork():
        fd = os.open(path, os.O_WRONLY)
        state = lambda: open(f"/proc/{os.getppid()}/stat").read().rpartition(")")[2].split()[0]
        while state() != "S":
            time.sleep(0.001)
        time.sleep(0.3)
        os.write(fd, b"x")
        os._exit(0)
    begin = time.monotonic_ns()
    fd = os.open(path, os.O_RDONLY)
    os.read(fd, 1)
    took_ns = time.monotonic_ns() - begin
    os.wait()
    open(sys.argv[1] + "/took", "w").write(str(took_ns))
"""


def test_a_wait_without_a_rule_is_listed_not_guessed(spool, recorded):
    mount = spool("ext4")
    others = [rule for rule in shipped_rules() if rule.cause != "process"]
    found = explain(recorded(mount, FIFO), rules=others)
    assert found.split.sum_error_ns == 0
    # The writer may open it late, or sleep for longer, on a busy machine.
    assert 290e6 < found.causes["unexplained"] < int((mount / "took").read_text())
    assert found.unknown[0].share > 0.9
    assert any("pipe" in frame for frame in found.unknown[0].frames)


# The kernel's own account of waiting for a CPU is read on both sides of each call: reads, which
# nothing throttles, and long ones.  A kernel that gives way only where it asks itself does so
# after each 31 large folios (62 MiB); a tick in the last 2 MiB counts after the call's return.
CROWD = """
    import os, sys
    os.sched_setaffinity(0, {0})
    buffers = [bytearray(64 << 20)]
    waited_ns = lambda: int(open("/proc/self/schedstat").read().split()[1])
    for who in range(3):
        if not os.fork():
            fd, waits = os.open(f"{sys.argv[1]}/{who}", os.O_RDWR | os.O_CREAT), 0
            os.pwritev(fd, buffers, 0)
            for i in range(30):
                before = waited_ns()
                os.preadv(fd, buffers, 0)
                waits += waited_ns() - before
            open(f"{sys.argv[1]}/{who}.waited", "w").write(str(waits))
            os._exit(0)
    for who in range(3):
        assert os.wait()[1] == 0
"""


def test_a_crowded_cpu_is_preemption_not_the_filesystem(spool, recorded):
    mount = spool("ext4")
    result = study(recorded(mount, CROWD))
    causes = result.explanation.by_syscall["preadv2"].causes
    waited_ns = sum(int(file.read_text()) for file in mount.glob("*.waited"))
    print(causes, waited_ns)
    assert waited_ns > 0.3 * sum(causes.values())
    assert 0.8 * waited_ns < causes["preempt"] < 1.01 * waited_ns
    assert result.explanation.split.sum_error_ns == 0
