"""The bpftrace scripts during a recording of the same workload: equal counts, similar sums.

Both see the same switches and wakeups by different programs. If a time begins or ends at the entry
or exit of a call, the program of the other runs in between: SLACK_NS a call.
"""

import re
import subprocess
import tempfile
from collections import Counter
from contextlib import ExitStack
from pathlib import Path

import pytest
from clocks import TimesDifferError, alike, compares_times
from live import CALLS, COMM, SYNCERS, ask, bpftrace, workload

pytestmark = [pytest.mark.root, compares_times]
SLACK_NS = 20_000
# Delay of a request, so that a call that needs it sleeps.
SLOW_NS = 5_000_000

# Prime numbers of calls of each kind; names absolute, relative to the cwd and to a descriptor.
MAILBOX = """
import fcntl, os, sys
mount = sys.argv[1]
os.chdir(mount)
os.mkdir("new")
here = os.open(".", os.O_RDONLY)
for i in range(23):
    name = [f"{mount}/new/{i}", f"new/{i}"][i % 2]
    fd = os.open(name, os.O_CREAT | os.O_RDWR)
    os.write(fd, b"mail")
    if i < 7:
        os.fsync(fd)
    os.close(fd)
for i in range(13):
    os.rename(f"new/{i}", f"new/{i}.cur", src_dir_fd=here, dst_dir_fd=here)
for i in range(11):
    os.stat(f"{mount}/new/{i}.cur")
for i in range(5):
    os.link(f"new/{i}.cur", f"new/{i}.link")
for i in range(3):
    os.unlink(f"{mount}/new/{i}.link")
fd = os.open("new/20", os.O_RDWR)
for i in range(17):
    os.pread(fd, 4, 0)
for i in range(19):
    fcntl.flock(fd, fcntl.LOCK_EX)
os.ftruncate(fd, 2)
# Not on the mount, though they look alike.
for name in (mount + "x", "/etc/passwd", mount[:-1]):
    for i in range(29):
        try:
            os.stat(name)
        except OSError:
            pass
os.pread(os.open("/etc/passwd", os.O_RDONLY), 4, 0)
"""


@pytest.fixture
def short(require):
    """Return ``short(mount)``: the mount under a name that fits into a bpftrace string."""
    require("bpftrace")
    with ExitStack() as cleanup:

        def bind(mount: Path) -> Path:
            place = Path(tempfile.mkdtemp(dir="/tmp"))
            cleanup.callback(place.rmdir)
            subprocess.run(["mount", "--bind", mount, place], check=True)
            cleanup.callback(lambda: subprocess.run(["umount", "-l", place], check=True))
            return place

        yield bind


@pytest.fixture
def mail(spool, short):
    return short(spool("ext4"))


@pytest.fixture
def slow_mail(slow_spool, short):
    """Return a spool and its disk, which is so slow that every call that needs it sleeps."""
    mount, disk = slow_spool("ext4")
    return short(mount), disk


def by_call(trace, what="count(*)") -> dict[str, int]:
    totals = dict(
        ask(
            trace,
            f"SELECT syscall, {what} FROM syscalls WHERE comm = '{COMM}' GROUP BY 1",
        )
    )
    sums = Counter()
    for name, calls in CALLS.items():
        for call in calls:
            sums[name] += int(totals.get(call, 0))
    return {name: n for name, n in sums.items() if n}


def test_spoollat_counts_and_divides_the_calls_of_the_recording(mail, tmp_path):
    command = workload(tmp_path, MAILBOX, mail)
    trace, maps, _ = bpftrace("spoollat.bt", command, mail, tmp_path, mail)
    counted = by_call(trace)
    assert {name: counted[name] for name in ("open", "sync", "rename", "stat", "link", "lock")} == {
        "open": 25,
        "sync": 7,
        "rename": 13,
        "stat": 11,
        "link": 5,
        "lock": 19,
    }
    assert maps["@calls"] == counted
    n = sum(counted.values())
    [ours] = ask(
        trace,
        "SELECT sum(dur_ns), sum(blocked_ns), sum(runq_ns + preempted_ns) FROM syscalls"
        f" WHERE comm = '{COMM}' AND syscall IN {sum(CALLS.values(), ())}",
    )
    theirs = maps["@sum_ns"]
    alike("all", sum(theirs.values()), ours[0], rel=0.02, least=n * SLACK_NS)
    [(sleeps,)] = ask(trace, "SELECT count(*) FROM segments WHERE seq IS NOT NULL")
    assert theirs["blocked"] > 0
    in_histograms = sum(b["count"] for call in maps["@usecs"].values() for b in call)
    assert in_histograms == n
    alike("blocked", theirs["blocked"], ours[1], rel=0.01, least=sleeps * SLACK_NS)
    alike("runq", theirs["runq"], ours[2], rel=0.01, least=sleeps * SLACK_NS)


# One lock that is held for 300 ms, and quick ones.
HELD = """
import fcntl, os, sys, time
fd = os.open(sys.argv[1] + "/box", os.O_CREAT | os.O_RDWR)
there, told = os.pipe()
if not os.fork():
    own = os.open(sys.argv[1] + "/box", os.O_RDWR)
    fcntl.flock(own, fcntl.LOCK_EX)
    os.write(told, b"x")
    time.sleep(0.3)
    os._exit(0)
os.read(there, 1)
fcntl.flock(fd, fcntl.LOCK_EX)
for i in range(100):
    fcntl.flock(fd, fcntl.LOCK_EX)
"""


def test_spoolsnoop_tells_the_slow_call_and_what_it_waited_for(mail, tmp_path):
    command = workload(tmp_path, HELD, mail)
    trace, _, text = bpftrace("spoolsnoop.bt", command, mail, tmp_path, 200, mail)
    [(tid, took, blocked)] = ask(
        trace, "SELECT tid, dur_ns, blocked_ns FROM syscalls WHERE dur_ns > 200e6"
    )
    # After the heading, a line for the one slow call and then its stack.
    line, *stack = text.partition("WOKENBY\n")[2].rstrip().splitlines()
    _, comm, thread, call, usec, waited, _, by = line.split()
    assert (comm, int(thread), call) == (COMM, tid, "lock")
    assert by == COMM
    assert any("flock" in frame for frame in stack)
    assert len(line) < 80
    alike("took", int(usec), took / 1e3, rel=0.01)
    alike("waited", int(waited), blocked / 1e3, rel=0.01)


# argv: mount, then how many fsyncs each process makes, one process after the other.
def asked(maps, journal: str) -> Counter[int]:
    """Return the commits by the process that asked for them, by commitblame.bt.

    A kernel thread that has just ended a commit and does not sleep yet is not woken.
    """
    found = Counter()
    for kind in ("@woken", "@queued"):
        for key, n in maps[kind].items():
            thread, _, pid, *_ = key.split(",")
            if thread == journal:
                found[int(pid)] += n
    return found


def test_commitblame_charges_commits_to_those_of_the_recording(slow_mail, tmp_path):
    mail, disk = slow_mail
    disk.delay("flush", SLOW_NS)
    command = workload(tmp_path, SYNCERS, mail, 23, 7, 2)
    trace, maps, _ = bpftrace("commitblame.bt", command, mail, tmp_path)
    ours = ask(
        trace,
        "SELECT trigger_pid, count(*) FROM commits WHERE trigger = 'call' GROUP BY 1 ORDER BY 2",
    )
    assert [n for _, n in ours] == [2, 7, 23]
    [(thread,)] = ask(trace, "SELECT DISTINCT comm FROM commits")
    assert asked(maps, thread) == dict(ours)
    stacks = [key for key in maps["@woken"] if key.startswith(f"{thread},{COMM},")]
    assert stacks
    assert all("ext4_sync_file" in stack for stack in stacks)
    waited = ask(
        trace,
        "SELECT segments.comm_, count(*), sum(dur_ns) FROM (SELECT s.dur_ns, c.comm AS comm_"
        " FROM segments s JOIN syscalls c USING (tid, seq) WHERE state = 'blocked'"
        " AND waker_comm LIKE 'jbd2/%') segments GROUP BY 1",
    )
    [(comm, n, ns)] = waited
    assert comm == COMM
    assert maps["@waits"][comm] == n >= 23 + 7 + 2
    # Other tasks may also wait for such a commit, as writeback does.
    assert maps["@caused_us"][comm] >= maps["@waited_us"][comm]
    alike("waited", maps["@waited_us"][comm] * 1000, ns, rel=0.02, least=n * SLACK_NS)


# argv: mount. Five at once: one syncs without a pause, the others now and then.
CROWD = """
import os, sys, time
kids = []
for who in range(5):
    if not (kid := os.fork()):
        fd = os.open(f"{sys.argv[1]}/{who}", os.O_CREAT | os.O_WRONLY)
        for i in range(20 if who else 401):
            os.write(fd, b"x" * 5000)
            os.fsync(fd)
            time.sleep(0.02 if who else 0)
        os._exit(0)
    kids.append(kid)
print("culprit", kids[0], flush=True)
assert [os.waitpid(kid, 0)[1] for kid in kids] == [0] * len(kids)
"""


def test_commitblame_names_the_culprit_in_a_crowd(mail, tmp_path, capfd):
    """The thread of a busy journal is seldom woken: most commits follow one another."""
    command = workload(tmp_path, CROWD, mail)
    trace, maps, _ = bpftrace("commitblame.bt", command, mail, tmp_path)
    culprit = int(re.search(r"culprit (\d+)", capfd.readouterr().out)[1])
    [(thread, n)] = ask(trace, "SELECT comm, count(*) FROM commits GROUP BY 1")
    ours = Counter(
        dict(
            ask(
                trace,
                "SELECT trigger_pid, count(*) FROM commits WHERE trigger = 'call' GROUP BY 1",
            )
        )
    )
    theirs = asked(maps, thread)
    assert maps["@queued"]
    assert ours.total() == pytest.approx(n, rel=0.02)
    assert theirs.total() == pytest.approx(n, rel=0.05)
    # For a commit without a wakeup both infer the first asker, each in its own way.
    assert ours.most_common(1)[0][0] == theirs.most_common(1)[0][0] == culprit
    alike("culprit's share", theirs[culprit] / n, ours[culprit] / n, rel=0, least=0.1)
    [(waits, ns)] = ask(
        trace,
        "SELECT count(*), sum(s.dur_ns) FROM segments s JOIN syscalls c USING (tid, seq)"
        f" WHERE state = 'blocked' AND waker_comm = '{thread}' AND comm = '{COMM}'",
    )
    assert maps["@waits"][COMM] == pytest.approx(waits, rel=0.02)
    assert maps["@caused_us"][COMM] >= 0.9 * maps["@waited_us"][COMM]
    alike("waited", maps["@waited_us"][COMM] * 1000, ns, rel=0.03)


def test_commitblame_charges_pushes_of_the_log_of_xfs(spool, short, tmp_path):
    mount = short(spool("xfs"))
    command = workload(tmp_path, SYNCERS, mount, 23, 7)
    trace, maps, _ = bpftrace("commitblame-xfs.bt", command, mount, tmp_path)
    pids = ask(trace, "SELECT pid, count(*) FROM syscalls WHERE syscall = 'fsync' GROUP BY 1")
    theirs = Counter()
    for key, n in maps["@pushes"].items():
        _, _, pid, _ = key.split(",", 3)
        theirs[int(pid)] += n
    # Each file grew, so that each of these fsyncs needs a push.
    assert {pid: theirs[pid] for pid, _ in pids} == dict(pids)


def test_commitblame_counts_the_syncs_of_btrfs(spool, short, tmp_path):
    mount = short(spool("btrfs"))
    command = workload(tmp_path, SYNCERS, mount, 23, 7)
    trace, maps, _ = bpftrace("commitblame-btrfs.bt", command, mount, tmp_path)
    [(comm, blocked)] = ask(
        trace, "SELECT comm, sum(blocked_ns) FROM syscalls WHERE syscall = 'fsync' GROUP BY 1"
    )
    pids = ask(trace, "SELECT pid, count(*) FROM syscalls WHERE syscall = 'fsync' GROUP BY 1")
    assert {int(k.split(",")[1]): n for k, n in maps["@syncs"].items()} == dict(pids)
    [(n,)] = ask(trace, "SELECT count(*) FROM segments JOIN syscalls USING (tid, seq)")
    slack = n * SLACK_NS / 1e3
    alike("blocked", maps["@blocked_us"][comm], int(blocked) / 1e3, rel=0.02, least=slack)


FILL = """
import os, sys
os.mkdir(sys.argv[1] + "/box")
for i in range(3000):
    os.mknod(f"{sys.argv[1]}/box/{i:080}")
"""

# The recorder has just read the whole tree; the caches are dropped once they are clean. Blocks that
# the journal has not checkpointed are released by the first round and dropped by the second.
LOOKUPS = """
import ctypes, os, sys
ctypes.CDLL(None).syncfs(os.open(sys.argv[1], os.O_RDONLY))
for i in range(2):
    with open("/proc/sys/vm/drop_caches", "w") as caches:
        caches.write("3")
for i in (7, 1500, 2999):
    os.stat(f"{sys.argv[1]}/box/{i:080}")
os.listdir(sys.argv[1] + "/box")
kids = []
for who in range(3):
    if not (kid := os.fork()):
        # The first has the directory while it reads the inodes of what it removes.
        for i in range(3000 if who else 0):
            name = f"{sys.argv[1]}/box/{who}.{i}"
            os.mknod(name)
            os.rename(name, name + "x")
            os.unlink(name + "x")
        for i in range(0 if who else 3000):
            os.unlink(f"{sys.argv[1]}/box/{i:080}")
        os._exit(0)
    kids.append(kid)
assert [os.waitpid(kid, 0)[1] for kid in kids] == [0] * 3
"""


def test_dirlookup_sums_what_the_recording_says_of_directories(slow_mail, tmp_path):
    mail, disk = slow_mail
    subprocess.run(workload(tmp_path, FILL, mail).split(), check=True)
    # Else one read brings 512 inodes.
    subprocess.run(["mount", "-o", "remount,inode_readahead_blks=0", mail], check=True)
    disk.delay("read", SLOW_NS)
    command = workload(tmp_path, LOOKUPS, mail)
    trace, maps, _ = bpftrace("dirlookup.bt", command, mail, tmp_path)
    ours = {
        call: (int(n), int(ns))
        for call, n, ns in ask(
            trace,
            "SELECT syscall, count(*), sum(s.dur_ns) FROM segments s JOIN syscalls c"
            f" USING (tid, seq) WHERE state = 'blocked' AND comm = '{COMM}' GROUP BY 1",
        )
    }
    n, ns = ours["newfstatat"]
    looked_up = sum(
        us for key, us in maps["@lookup_us"].items() if key.startswith(COMM) and "0000" in key
    )
    alike("lookups", looked_up * 1000, ns, rel=0.02, least=n * SLACK_NS)
    n, ns = ours["getdents64"]
    [(_, us)] = [kv for kv in maps["@readdir_us"].items() if kv[0].endswith(",box")]
    alike("listing", us * 1000, ns, rel=0.02, least=n * SLACK_NS)
    # Names without a dot are longer than a bpftrace string.
    ours = dict(
        ask(
            trace,
            "SELECT path, sum(s.dur_ns) FROM segments s JOIN syscalls c USING (tid, seq)"
            " JOIN paths p ON p.path_id = coalesce(c.path2_id, c.path_id)"
            " WHERE state = 'blocked' AND syscall IN ('rename', 'unlink') AND path LIKE '%.%'"
            " AND stack_id IN"
            " (SELECT stack_id FROM stacks WHERE symbol LIKE 'rwsem_down_%') GROUP BY 1",
        )
    )
    theirs = {
        key.partition(f"{mail}/")[2]: us * 1000
        for key, us in maps["@lock_us"].items()
        if key.startswith(COMM) and "." in key.partition(f"{mail}/")[2]
    }
    # The script may take another lock of this kind for that of the directory (see its CAVEATS):
    # in trials they agreed on eight in ten.
    agree = [n for n in ours if abs(theirs.get(n, 0) - ours[n]) < 0.05 * ours[n] + SLACK_NS]
    assert len(ours) > 3 < len(theirs)
    if len(agree) < 0.5 * max(len(ours), len(theirs)):
        raise TimesDifferError(f"locks: {len(agree)} alike of {len(ours)} and {len(theirs)}")
