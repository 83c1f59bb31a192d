"""Culprits of real recordings, against programs that know their own culprits."""

import json

import pyarrow.parquet as pq
import pytest

from spoolscope.analysis.explain import explain

pytestmark = [pytest.mark.root, pytest.mark.slow, pytest.mark.steady]
FILESYSTEMS = ("ext4", "xfs", "btrfs")

# start(name, function) forks; at the end the parent prints the pid of each name.
PRELUDE = """
import fcntl, json, mmap, os, signal, sys, time
spool, told = sys.argv[1], sys.argv[0] + ".json"
os.chdir(spool)
pids = {}
def start(name, work):
    pid = os.fork()
    if not pid:
        open("/proc/self/comm", "w").write(name)
        work(); os._exit(0)
    pids[name] = pid
def until(seconds):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        yield
def finish(said=None):
    assert all(os.waitpid(pid, 0)[1] == 0 for pid in pids.values())
    json.dump({"pids": pids, "said": said and said()}, open(told, "w"))
"""


@pytest.fixture
def guilty(slow_spool, recorded, tmp_path):
    """Return ``guilty(fstype, program, flush_ns)``: its explanation, edges and output."""

    def run(fstype, program, flush_ns=0):
        mount, disk = slow_spool(fstype)
        disk.delay("flush", flush_ns)
        trace = recorded(mount, PRELUDE + program)
        file = tmp_path / "edges.parquet"
        found = explain(trace, edges=file)
        edges = [row for row in pq.read_table(file).to_pylist() if row["hop"] == 1]
        return found, edges, json.loads((tmp_path / "program.py.json").read_text())

    return run


def by_pid(edges, victim, mechanism, cause=None):
    ns = {}
    for row in edges:
        if (
            row["victim_pid"] == victim
            and row["mechanism"] == mechanism
            and (cause in (None, row["cause"]))
        ):
            ns[row["culprit_pid"]] = ns.get(row["culprit_pid"], 0) + row["to_ns"] - row["from_ns"]
    return ns


HELD_DIRECTORY = """
os.mkdir("busy"); os.mkdir("calm")
for n in range(20000):
    os.close(os.open(f"busy/{n}.a-name-of-some-length", os.O_CREAT | os.O_WRONLY))
# Each lists for a second of CPU time, with the shares of an idle machine on a busy one, too.
os.nice(-20)
done = mmap.mmap(-1, 2)
def reader(n):
    while time.process_time() < 1:
        os.listdir("busy")
    done[n] = 1
def maker(where):
    def work():
        while not all(done[:]):
            os.close(os.open(f"{where}/new", os.O_CREAT | os.O_WRONLY))
            os.unlink(f"{where}/new")
            time.sleep(0.001)
    return work
start("reader", lambda: reader(0)); start("reader2", lambda: reader(1))
start("victim", maker("busy")); start("bystander", maker("calm"))
finish()
"""


@pytest.mark.parametrize("fstype", FILESYSTEMS)
def test_who_keeps_a_directory_busy(guilty, fstype):
    found, edges, told = guilty(fstype, HELD_DIRECTORY)
    pids = told["pids"]
    blamed = by_pid(edges, pids["victim"], "lock_holder", "dir_lock")
    readers = {pids["reader"], pids["reader2"]}
    print(fstype, pids, blamed, found.causes)
    right = sum(ns for pid, ns in blamed.items() if pid in readers)
    assert right > 1e6, "nobody was kept out"
    assert right >= 0.95 * sum(blamed.values())
    calls = {row["culprit_syscall"] for row in edges if row["culprit_pid"] in readers}
    assert "getdents64" in calls
    assert not by_pid(edges, pids["bystander"], "lock_holder", "dir_lock")


FILE_LOCK = """
lock = os.open("lock", os.O_CREAT | os.O_RDWR)
ready, go = os.pipe()
moments = mmap.mmap(-1, 4096)
def note(which):
    moments[8 * which : 8 * which + 8] = time.monotonic_ns().to_bytes(8, "little")
def waiting():
    with open("/proc/locks") as file:
        return sum("->" in line and f":{os.fstat(lock).st_ino} " in line for line in file)
def holder():
    fcntl.lockf(lock, fcntl.LOCK_EX)
    os.write(go, b"xxx")
    while waiting() < 3:
        time.sleep(0.001)
    note(3)
    time.sleep(0.4)
    os.fsync(lock)
    note(4)
    fcntl.lockf(lock, fcntl.LOCK_UN)
    note(5)
# A shared lock keeps no other victim out, however long one has to wait for a CPU with it.
def victim(n):
    os.read(ready, 1)
    note(n)
    fcntl.lockf(lock, fcntl.LOCK_SH)
    fcntl.lockf(lock, fcntl.LOCK_UN)
def bystander():
    other = os.open("other", os.O_CREAT | os.O_RDWR)
    for _ in until(0.5):
        fcntl.lockf(other, fcntl.LOCK_EX); fcntl.lockf(other, fcntl.LOCK_UN)
        time.sleep(0.01)
start("holder", holder); start("bystander", bystander)
for n in range(3):
    start(f"victim{n}", lambda n=n: victim(n))
finish(said=lambda: [int.from_bytes(moments[8 * n : 8 * n + 8], "little") for n in range(6)])
"""


def test_who_holds_a_file_lock(guilty):
    found, edges, told = guilty("ext4", FILE_LOCK)
    pids, (*asked, all_wait, given_up, released) = told["pids"], told["said"]
    assert given_up - all_wait > 0.4e9
    for n in range(3):
        blamed = by_pid(edges, pids[f"victim{n}"], "file_lock")
        print(n, pids, blamed)
        assert given_up - all_wait <= blamed[pids["holder"]] <= released - asked[n]
        assert blamed[pids["holder"]] >= 0.95 * sum(blamed.values())
        assert pids["bystander"] not in blamed
    # The write at the end of it is the next link.
    chain = found.chains[0]
    assert (chain[0].cause, chain[0].culprit) == ("file_lock", "holder")


FSYNC_LOOP = """
import itertools
done = mmap.mmap(-1, 1)
def hog():
    fd = os.open("hog", os.O_CREAT | os.O_WRONLY)
    end = time.monotonic() + 2
    for n in itertools.count(1):
        os.write(fd, b"h" * 4000); os.fsync(fd)
        if n % 50 == 0: os.ftruncate(fd, 0)
        if n >= 100 and time.monotonic() > end: break
    done[0] = 1
def victim():
    for n in itertools.count():
        began = time.monotonic()
        fd = os.open(f"mail{n}", os.O_CREAT | os.O_WRONLY)
        os.write(fd, b"v" * 2000); os.fsync(fd); os.close(fd)
        # Nine tenths of the commits are the hog's, however slow the disk is.
        time.sleep(max(0.03, 9 * (time.monotonic() - began)))
        if done[0]: return
def bystander():
    for n in itertools.count():
        fd = os.open(f"quiet{n % 20}", os.O_CREAT | os.O_WRONLY)
        os.write(fd, b"q" * 500); os.close(fd)
        time.sleep(0.005)
        if done[0]: return
os.mkdir("box")
start("hog", hog); start("victim", victim); start("bystander", bystander)
finish()
"""


@pytest.mark.parametrize("fstype", FILESYSTEMS)
def test_who_makes_the_journal_work(guilty, fstype):
    # On a fast disk the victim would hardly wait.
    found, edges, told = guilty(fstype, FSYNC_LOOP, flush_ns=2_000_000)
    # Another program of this machine may sync all filesystems; none of these does.
    edges = [row for row in edges if row["culprit_syscall"] != "sync"]
    pids, charges = told["pids"], found.commits.charges
    blamed = by_pid(edges, pids["victim"], "commit_trigger")
    shares = {row.pid: row.commit_ns for row in charges.by_process}
    commits = {row.pid: row.n for row in charges.by_process}
    print(fstype, pids, blamed, shares, commits, found.commits.waits)
    assert set(blamed) == {pids["hog"]}
    assert blamed[pids["hog"]] > 1e6
    assert charges.by_process[0].pid == pids["hog"]
    # Some commits of the victim are long: on btrfs they wait for those of the hog.
    assert commits[pids["hog"]] > 0.7 * found.commits.n
    assert pids["bystander"] not in shares
    assert charges.charged_ns + charges.uncharged_ns == charges.commit_ns
    assert sum(shares.values()) == charges.commit_ns


BUSY_DISK = """
def direct(name, size):
    buffer = mmap.mmap(-1, size)
    fd = os.open(name, os.O_RDWR | os.O_DIRECT)
    return fd, buffer
for name in ("big", "small"):
    with open(name, "wb") as file:
        file.write(os.urandom(32 << 20))
        file.flush()
        os.fsync(file.fileno())
def hog():
    fd, buffer = direct("big", 8 << 20)
    for _ in until(1):
        os.preadv(fd, [buffer], 0)
def victim():
    fd, buffer = direct("small", 4096)
    for _ in until(1):
        os.preadv(fd, [buffer], 4096)
def bystander():
    for _ in until(1):
        os.stat("small"); time.sleep(0.001)
start("hog", hog); start("victim", victim); start("bystander", bystander)
finish()
"""


@pytest.mark.parametrize("fstype", FILESYSTEMS)
def test_who_keeps_the_disk_busy(guilty, fstype):
    found, edges, told = guilty(fstype, BUSY_DISK)
    pids = told["pids"]
    blamed = by_pid(edges, pids["victim"], "device")
    print(fstype, pids, blamed, found.causes)
    assert blamed[pids["hog"]] > 20e6
    assert blamed[pids["hog"]] >= 0.95 * sum(blamed.values())
    assert pids["bystander"] not in blamed
