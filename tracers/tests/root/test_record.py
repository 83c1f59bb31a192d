"""Recordings of real work on real filesystems, each against a second source."""

import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from statistics import median, quantiles

import pytest
from clocks import alike, compares_times
from recordings import ask, in_processes, recorded, recorded_during

from spoolscope.tracers.session import Request, record
from spoolscope.traces.trace import Trace

pytestmark = [pytest.mark.root, pytest.mark.steady]

RENAMES = 23
# Three processes deliver messages.
DELIVER = f"""
import os, sys
spool = sys.argv[1]
for box in ("tmp", "new"):
    os.makedirs(f"{{spool}}/{{box}}", exist_ok=True)
def deliver(who):
    for i in range({RENAMES}):
        fd = os.open(f"{{spool}}/tmp/{{who}}.{{i}}", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        os.write(fd, b"x" * 4096)
        os.fsync(fd)
        os.close(fd)
        os.rename(f"{{spool}}/tmp/{{who}}.{{i}}", f"{{spool}}/new/{{who}}.{{i}}")
{in_processes(3)}"""


def run(mount: Path, tmp_path: Path, program: str, **options) -> Trace:
    script = tmp_path / "program.py"
    script.write_text(program)
    command = ["sh", "-c", f"{sys.executable} {script} {mount} > {tmp_path}/said"]
    return recorded(mount, tmp_path, command, **options)


@pytest.mark.parametrize("fstype", ["ext4", "xfs", "btrfs"])
def test_every_call_is_recorded_and_its_time_adds_up(fstype, spool, tmp_path):
    trace = run(spool(fstype), tmp_path, DELIVER)
    assert trace.meta["complete"]
    assert trace.meta["lost"] == 0
    assert trace.meta["paths_unresolved"] == 0
    n = dict(ask(trace, "SELECT syscall, count(*) FROM syscalls GROUP BY 1"))
    assert {k: n[k] for k in ("rename", "fsync", "write")} == dict.fromkeys(
        ("rename", "fsync", "write"), 3 * RENAMES
    )
    assert ask(
        trace,
        "SELECT max(abs(dur_ns - oncpu_ns - blocked_ns - runq_ns - preempted_ns)),"
        " min(least(oncpu_ns, blocked_ns, runq_ns, preempted_ns)) FROM syscalls",
    ) == [(0, 0)]
    # The sums of the segments equal the counters in the calls.
    assert ask(
        trace,
        """SELECT count(*) FROM syscalls c JOIN (
             SELECT tid, seq, sum(dur_ns) FILTER (state = 'blocked') AS b,
                    sum(dur_ns) FILTER (state = 'runq') AS r,
                    sum(dur_ns) FILTER (state = 'preempted') AS p
             FROM segments GROUP BY 1, 2) s USING (tid, seq)
           WHERE c.blocked_ns <> coalesce(b, 0) OR c.runq_ns <> coalesce(r, 0)
              OR c.preempted_ns <> coalesce(p, 0)""",
    ) == [(0,)]
    assert ask(trace, "SELECT count(*) > 60 FROM segments WHERE state = 'blocked'") == [(True,)]


@compares_times
def test_split_agrees_with_a_bpftrace_script(spool, tmp_path, require):
    """Every absence from the CPU in fsync, as other code sees it from the same scheduler events.

    The kernel's run_delay (schedstat) cannot be the second source: it begins when a task is
    enqueued, the recorder's when it is woken, and the wakeup of an idle CPU lies between.
    """
    require("bpftrace")
    mount = spool("ext4")
    said = tmp_path / "bpftrace.out"
    script = Path(__file__).with_name("runqueue.bt")
    with said.open("w") as out, subprocess.Popen(["bpftrace", script], stdout=out) as other:
        while "Attaching" not in said.read_text():
            time.sleep(0.1)
        time.sleep(1)  # it prints that before it is ready
        try:
            # Messages of 1 MiB: waits are long compared with the time of the two programs.
            trace = run(mount, tmp_path, DELIVER.replace("4096", "(1 << 20)"))
        finally:
            while other.poll() is None:  # it may lose a signal
                other.send_signal(signal.SIGINT)
                time.sleep(2)
    theirs, ours = _absences_of_bpftrace(said.read_text()), _absences_recorded(trace)
    assert len(ours) == 3
    for pid, seen in ours.items():
        others = theirs[pid]
        alike("absences", len(others), len(seen), rel=0)
        shift = _shift(list(others), list(seen))
        blocked, waited = [], []
        for ts, (off, asleep) in seen.items():
            their_off, their_asleep = others[min(others, key=lambda t: abs(ts - t - shift))]
            if their_asleep is not None:
                blocked.append(asleep - their_asleep)
                waited.append(off - asleep - their_off + their_asleep)
        # The programs differ by the time that the other one takes, the recorder most where it
        # reads the stack of the thread that leaves the CPU before the other one has it.
        for name, differ in (("blocked", blocked), ("waited", waited)):
            assert len(differ) > RENAMES
            lowest, *_, highest = quantiles(differ, n=10)
            alike(f"{name}, median, ns", 0, median(differ), rel=0, least=10_000)
            alike(f"{name}, first decile, ns", 0, lowest, rel=0, least=100_000)
            alike(f"{name}, last decile, ns", 0, highest, rel=0, least=100_000)


# By process: the absences by the time they began: (all of it, the part asleep), in nanoseconds.
Absences = dict[int, dict[int, tuple[int, int | None]]]


def _absences_of_bpftrace(printed: str) -> Absences:
    blocked, off = (
        {(int(pid), int(ts)): int(ns) for pid, ts, ns in re.findall(pattern, printed)}
        for pattern in (rf"@{name}\[(\d+), (\d+)\]: (\d+)" for name in ("blocked", "off"))
    )
    absences: Absences = {}
    for (pid, ts), ns in off.items():
        absences.setdefault(pid, {})[ts] = ns, blocked.get((pid, ts))
    return absences


def _absences_recorded(trace: Trace) -> Absences:
    """A wait for a CPU that begins where a sleep ends belongs to the same absence."""
    absences: Absences = {}
    for pid, ts, ns, asleep in ask(
        trace,
        """SELECT pid, s.ts_ns, s.dur_ns + coalesce(w.dur_ns, 0),
             CASE s.state WHEN 'blocked' THEN s.dur_ns ELSE 0 END
           FROM segments s JOIN (SELECT tid, seq FROM syscalls WHERE syscall = 'fsync')
             USING (tid, seq)
           LEFT JOIN (SELECT tid, ts_ns, dur_ns FROM segments WHERE state = 'runq') w
             ON w.tid = s.tid AND w.ts_ns = s.ts_ns + s.dur_ns AND s.state = 'blocked'
           WHERE s.state <> 'runq'""",
    ):
        absences.setdefault(pid, {})[ts] = ns, asleep
    return absences


def _shift(theirs: list[int], ours: list[int]) -> int:
    """The time of the two clocks' beginnings apart: that of most pairs, to 20 us."""
    apart = Counter(round((a - b) / 20_000) for a in ours for b in theirs)
    return apart.most_common(1)[0][0] * 20_000


def test_commits_agree_with_the_journal(spool, tmp_path):
    mount = spool("ext4")
    info = next(
        path / "info"
        for path in Path("/proc/fs/jbd2").iterdir()
        if path.name.startswith(_device(mount))
    )
    before = _transactions(info)
    trace = run(mount, tmp_path, DELIVER)
    counted = _transactions(info) - before
    commits = ask(trace, "SELECT count(*), count(*) FILTER (trigger <> 'unknown') FROM commits")
    [(n, named)] = commits
    assert counted - 1 <= n <= counted  # the kernel may commit once more after the detaching
    assert named == n
    blamed = ask(
        trace,
        "SELECT DISTINCT s.syscall FROM commits k JOIN syscalls s"
        " ON s.tid = k.trigger_tid AND s.seq = k.trigger_seq WHERE trigger = 'call'",
    )
    assert blamed == [("fsync",)]
    assert ask(
        trace,
        "SELECT count(*) FROM commits WHERE least(locking_ns, flushing_ns, logging_ns) < 0"
        " OR locking_ns + flushing_ns + logging_ns > dur_ns",
    ) == [(0,)]


def test_block_requests_agree_with_the_disks_counters(spool, tmp_path):
    mount = spool("ext4")
    stat = Path(f"/sys/block/{_device(mount)}/stat")
    subprocess.run(["sync", "-f", mount], check=True)
    before = _sectors_written(stat)
    trace = run(mount, tmp_path, DELIVER)
    written = _sectors_written(stat) - before
    number = Path(f"/dev/{_device(mount)}").stat().st_rdev
    disk = os.major(number) << 20 | os.minor(number)  # without the disks below it
    [(ours,)] = ask(
        trace, f"SELECT sum(bytes) // 512 FROM block_ios WHERE op = 'write' AND dev = {disk}"
    )
    assert written > 0
    assert 0.99 * written <= ours <= written  # writeback may go on after the detaching


def test_a_killed_recorder_leaves_a_readable_trace(spool, tmp_path, when_ready):
    """The injected fault is kill -9 on the native recorder in the middle of the work."""
    mount = spool("ext4")

    def kill():
        time.sleep(2.5)  # records are written once a second
        subprocess.run(["pkill", "-9", "-f", f"spoolscope-record run.*{mount}"], check=True)

    when_ready(tmp_path / "trace", kill)
    summary = record(
        Request(
            spools=[mount], output=tmp_path / "trace", command=["sh", "-c", _ENDLESS, str(mount)]
        )
    )
    subprocess.run(["pkill", "-f", f"endless {mount}"], check=False)
    trace = Trace.open(summary.trace)
    assert summary.failure is not None
    assert not trace.meta["complete"]
    assert ask(trace, "SELECT count(*) > 10 FROM syscalls WHERE syscall = 'fsync'") == [(True,)]


# It ends by itself if this test does not end it.
_ENDLESS = """: endless $0; ulimit -t 60
for i in $(seq 9999); do dd if=/dev/zero of=$0/f bs=1k count=1 conv=fsync 2>&-; done"""


def test_loss_is_counted_and_located(spool, tmp_path):
    """The injected fault is a stopped recorder with a ring that is too small for that time."""
    mount = spool("ext4")
    writes = 40_009
    (mount / "f").touch()
    command = (
        "import os, sys, signal, time\n"
        f"fd = os.open({str(mount / 'f')!r}, os.O_WRONLY)\n"
        "recorder = os.getppid()\n"
        "os.kill(recorder, signal.SIGSTOP)\n"
        f"for i in range({writes}): os.pwrite(fd, b'x', 0)\n"
        "os.kill(recorder, signal.SIGCONT)\n"
        "time.sleep(0.2)\n"
        "os.pwrite(fd, b'x', 0)\n"
    )
    script = tmp_path / "stopper.py"
    script.write_text(command)
    trace = Trace.open(_record_with_ring(mount, tmp_path, 1, [sys.executable, str(script)]))
    [(recorded,)] = ask(trace, "SELECT count(*) FROM syscalls WHERE syscall = 'pwrite64'")
    ranges = ask(
        trace, "SELECT first_seq, last_seq, n FROM losses WHERE kind = 'syscall' ORDER BY 1"
    )
    lost = sum(n for _, _, n in ranges)
    assert lost > 0
    assert recorded + lost == writes + 1  # the program's own count
    assert not trace.meta["complete"]
    for first, last, n in ranges:  # one, or one for each CPU to which it was moved
        assert last - first + 1 == n
        assert ask(
            trace, f"SELECT count(*) FROM syscalls WHERE seq BETWEEN {first} AND {last}"
        ) == [(0,)]


def _record_with_ring(mount: Path, tmp_path: Path, mib: int, command: list[str]) -> Path:
    from spoolscope.tracers.session import recover
    from spoolscope.traces.native import find_binary

    capture = tmp_path / "capture.seg"
    recorder = [find_binary("spoolscope-record"), "run", "--spool", mount, "--output", capture]
    subprocess.run([*recorder, "--ring-mib", str(mib), "--", *command], check=True)
    return recover(capture, tmp_path / "trace", None).trace


def test_start_state_agrees_with_proc(spool, tmp_path):
    """The files, offset, cwd and umask of a process from before the recording are known."""
    mount = spool("ext4")
    (mount / "old").write_bytes(b"x" * 1000)
    (mount / "sub").mkdir()
    program = (
        "import os, sys\n"
        f"os.chdir({str(mount / 'sub')!r}); os.umask(0o027)\n"
        f"fd = os.open({str(mount / 'old')!r}, os.O_RDWR | os.O_APPEND); os.lseek(fd, 7, 0)\n"
        "print(fd, flush=True)\n"
        "sys.stdin.readline()\n"
        "os.read(fd, 3); os.open('made-here', os.O_CREAT | os.O_WRONLY)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        fd = int(process.stdout.readline())
        flags = Path(f"/proc/{process.pid}/fdinfo/{fd}").read_text().split()
        trace = recorded_during(lambda: process.communicate("go\n"), mount, tmp_path)
    opened = ask(
        trace,
        f'SELECT path, flags, "offset" FROM open_files JOIN paths USING (path_id)'
        f" WHERE pid = {process.pid} AND fd = {fd}",
    )
    assert opened == [("old", int(flags[flags.index("flags:") + 1], 8), 7)]
    calls = ask(
        trace,
        f"SELECT syscall, path, path_base FROM syscalls JOIN paths USING (path_id)"
        f" WHERE pid = {process.pid} AND syscall IN ('read', 'openat') ORDER BY seq",
    )
    assert calls == [("read", "old", 0), ("openat", "sub/made-here", 2)]
    [(cwd, umask)] = ask(
        trace,
        f"SELECT path, umask FROM threads JOIN paths ON cwd_id = path_id WHERE pid = {process.pid}",
    )
    assert (cwd, umask) == ("sub", 0o027)
    names = {path for (path,) in ask(trace, "SELECT path FROM tree JOIN paths USING (path_id)")}
    assert {"old", "sub"} <= names


def test_names_do_not_leak(spool, tmp_path):
    """Every decoded column of every table is searched for the names that were used."""
    mount = spool("ext4")
    user, host = "alice.liddell", "mx7.example.net"
    key = tmp_path / "key"
    program = (
        f"import os; d = {str(mount)!r} + '/{host}/{user}/Maildir/new'\n"
        "os.makedirs(d)\n"
        f"open(d + '/1700000000.M1P2.{host},S=5:2,S', 'w').write('hello')\n"
        f"os.setxattr(d, 'user.{user}', b'1'); os.symlink('{user}', d + '/link')\n"
    )
    script = tmp_path / "program.py"
    script.write_text(program)
    summary = record(
        Request(
            spools=[mount],
            output=tmp_path / "trace",
            command=[sys.executable, str(script)],
            key_file=key,
        )
    )
    trace = Trace.open(summary.trace)
    paths = [p for (p,) in ask(trace, "SELECT path FROM paths WHERE kind = 'spool'")]
    assert any(p.endswith("Maildir/new") for p in paths)
    assert any(p.endswith(",S=5:2,S") for p in paths)
    plain = (
        "\n".join(
            str(row)
            for table in ("paths", "threads", "tree")
            for row in trace.table(table).to_pylist()
        )
        + (trace.path / "meta.json").read_text()
    )
    for secret in (user, host):
        assert secret not in plain
    assert key.stat().st_mode & 0o777 == 0o600


def _device(mount: Path) -> str:
    source = subprocess.run(
        ["findmnt", "-no", "SOURCE", mount], check=True, capture_output=True, text=True
    )
    return source.stdout.strip().removeprefix("/dev/")


def _transactions(info: Path) -> int:
    return int(info.read_text().split()[0])


def _sectors_written(stat: Path) -> int:
    return int(stat.read_text().split()[6])


def test_absolute_names_of_a_chrooted_process(spool, tmp_path):
    """As Postfix, a process changes its root to the queue, then uses names below it."""
    mount = spool("ext4")
    (mount / "queue" / "active").mkdir(parents=True)
    program = (
        f"import os; os.chroot({str(mount / 'queue')!r}); os.chdir('/')\n"
        "os.open('/active/one', os.O_CREAT | os.O_WRONLY); os.rename('active/one', '/two')\n"
    )
    trace = run(mount, tmp_path, program)
    named = "SELECT path, path_base FROM syscalls JOIN paths USING (path_id) WHERE syscall = "
    assert ask(trace, named + "'chroot'") == [("queue", 1)]
    assert ask(trace, named + "'openat' AND ret >= 0") == [("queue/active/one", 1)]
    assert ask(trace, named + "'rename'") == [("queue/active/one", 2)]
    assert ask(trace, "SELECT path FROM syscalls JOIN paths p ON p.path_id = path2_id") == [
        ("queue/two",)
    ]
    assert trace.meta["paths_unresolved"] == 0
    assert (mount / "queue" / "two").exists()


LOOP = """
import os, sys
for i in range({n}):
    os.close(os.open(sys.argv[1] + "/" + {name!r}, os.O_CREAT | os.O_WRONLY))
"""


@pytest.mark.parametrize("by", ["pid", "comm", "cgroup"])
def test_filters_keep_others_out(by, spool, tmp_path, require):
    """Two programs do the same on the spool; only the chosen one is recorded."""
    mount = spool("ext4")
    n = 101
    cgroup = Path("/sys/fs/cgroup/unified/spoolscope-test")
    if not cgroup.parent.is_dir():
        cgroup = Path("/sys/fs/cgroup/spoolscope-test")
    if by == "cgroup":
        if not (cgroup.parent / "cgroup.procs").exists():
            require("cgroup2", "no cgroup v2 hierarchy below /sys/fs/cgroup")
        cgroup.mkdir(exist_ok=True)
    wait = "import sys; sys.stdin.readline()\n"
    programs = []
    for name in ("wanted", "other"):
        # A link to the interpreter: comm is the basename of the executed name.
        link = tmp_path / f"{name}-program"
        link.symlink_to(sys.executable)
        code = wait + LOOP.format(n=n, name=name)
        programs.append(
            subprocess.Popen([link, "-c", code, str(mount)], stdin=subprocess.PIPE, text=True)
        )
    wanted = programs[0].pid
    if by == "cgroup":
        (cgroup / "cgroup.procs").write_text(str(wanted))
    chosen = {
        "pid": {"pids": [wanted]},
        "comm": {"comms": ["wanted-program"]},
        "cgroup": {"cgroups": [str(cgroup)]},
    }[by]
    try:
        trace = recorded_during(
            lambda: [p.communicate("\n") for p in programs], mount, tmp_path, **chosen
        )
    finally:
        if by == "cgroup":
            cgroup.rmdir()
    assert [p.returncode for p in programs] == [0, 0]
    assert (mount / "other").exists()
    assert ask(
        trace,
        "SELECT pid, path, count(*) FROM syscalls JOIN paths USING (path_id)"
        " WHERE syscall = 'openat' AND kind = 'spool' GROUP BY ALL",
    ) == [(wanted, "wanted", n)]


def test_everybody_on_a_running_spool_with_a_duration(spool, tmp_path, when_ready):
    mount = spool("xfs")
    n = 53
    work = f"for i in $(seq {n}); do : > {mount}/f$i; done"
    when_ready(tmp_path / "t", lambda: subprocess.run(["sh", "-c", work], check=True))
    summary = record(Request(spools=[mount], output=tmp_path / "t", duration_s=3, keep_names=True))
    trace = Trace.open(summary.trace)
    assert trace.meta["complete"]
    assert 3e9 <= trace.meta["duration_ns"] < 30e9
    opened = "SELECT count(DISTINCT path_id) FROM syscalls WHERE syscall = 'openat' AND ret >= 0"
    assert ask(trace, opened) == [(len(list(mount.iterdir())),)] == [(n,)]


APART = """
import ctypes, os, sys, threading
def calls():
    if sys.argv[2] != "0":
        assert ctypes.CDLL(None, use_errno=True).unshare(int(sys.argv[2])) == 0
        os.chdir("below")
    for _ in range(5):
        os.close(os.open("file", os.O_CREAT))
os.makedirs(sys.argv[1] + "/below")
os.chdir(sys.argv[1])
one = threading.Thread(target=calls)
one.start()
one.join()
while os.path.exists(f"/proc/self/task/{one.native_id}"):  # join() does not wait for its exit
    pass
"""


@pytest.mark.parametrize(("flags", "n"), [(0, 0), (0x200, 12), (0x400, 12), (0x600, 12)])
def test_calls_of_threads_with_tables_of_their_own_are_counted(spool, tmp_path, flags, n):
    """CLONE_FS and CLONE_FILES: a chdir, five times open and close, the exit."""
    mount = spool("ext4")
    command = [sys.executable, "-S", "-c", APART, str(mount), str(flags)]
    summary = record(Request(spools=[mount], output=tmp_path / "t", command=command))
    assert summary.command_status == 0
    assert Trace.open(summary.trace).meta["calls_apart"] == n
    info = [sys.executable, "-m", "spoolscope.cli.main", "info", str(summary.trace)]
    said = subprocess.run(info, capture_output=True, text=True, check=True).stdout
    assert (f"\n{n} calls were made by threads that do not share" in said) == (n > 0)


def test_32_bit_calls_are_counted_not_misread(spool, tmp_path, require):
    """int 0x80 in a 64-bit program uses the 32-bit table, where 3 is read, not close."""
    mount = spool("ext4")
    n = 7
    source = tmp_path / "compat.c"
    source.write_text(
        "#include <fcntl.h>\n#include <unistd.h>\n"
        "int main(int c, char **v) { int fd = open(v[1], O_RDONLY); int r;\n"
        '__asm__ volatile("int $0x80" : "=a"(r) : "a"(20)); if (r != getpid()) return 77;\n'
        f"for (int i = 0; i < {n}; i++)\n"
        '__asm__ volatile("int $0x80" : "=a"(r) : "a"(3), "b"(fd), "c"(0), "d"(0));\n'
        "return 0; }\n"
    )
    subprocess.run(["cc", "-o", tmp_path / "compat", source], check=True)
    command = [str(tmp_path / "compat"), str(mount)]
    summary = record(Request(spools=[mount], output=tmp_path / "t", command=command))
    if summary.command_status != 0:  # getpid by int 0x80 failed, or killed the program
        require("32-bit calls", "this kernel refuses them (CONFIG_IA32_EMULATION)")
    trace = Trace.open(summary.trace)
    calls = "SELECT syscall FROM syscalls WHERE syscall IN ('open', 'openat', 'read', 'close')"
    assert ask(trace, calls) == [("openat",)]
    # one read per turn, and getpid (20, which is writev for a 64-bit caller)
    assert trace.meta["compat_calls"] == n + 1
    info = [sys.executable, "-m", "spoolscope.cli.main", "info", str(summary.trace)]
    said = subprocess.run(info, capture_output=True, text=True, check=True).stdout
    assert f"\n{n + 1} calls of 32-bit programs were seen, not decoded: what they did" in said


UNSEEN = """
import ctypes, os, struct, sys
os.chdir(sys.argv[1])
libc = ctypes.CDLL(None, use_errno=True)
os.mkdir("d")
os.mknod("d/f")
at = os.open("d", os.O_PATH)
for name in ("f", "g"): # the second one is not there
    try:
        os.setxattr(f"/proc/self/fd/{at}/{name}", "user.a", b"1")
    except FileNotFoundError:
        pass
os.rename(f"/proc/self/fd/{at}/f", f"/proc/self/fd/{at}/h")
os.chmod(f"/proc/self/fd/{os.open('d', 0)}", 0o700) # recorded as by the descriptor
os.stat("/proc/self/fd/0")
file = os.open("data", os.O_CREAT | os.O_RDWR)
context = ctypes.c_ulong(0)
assert libc.syscall(206, 8, ctypes.byref(context)) == 0 # io_setup
buffer = ctypes.create_string_buffer(4096)
for fd in (file, os.open("/dev/null", os.O_WRONLY)):
    at = ctypes.addressof(buffer)
    # struct iocb: IOCB_CMD_PWRITE
    request = struct.pack("<QIIHhIQQqQII", 0, 0, 0, 1, 0, fd, at, 4096, 0, 0, 0, 0)
    iocb = ctypes.create_string_buffer(request, len(request))
    pointer = (ctypes.c_void_p * 1)(ctypes.addressof(iocb))
    assert libc.syscall(209, context, 1, pointer) == 1 # io_submit
    events = ctypes.create_string_buffer(32)
    assert libc.syscall(208, context, 1, 1, events, None) == 1 # io_getevents
assert os.fstat(file).st_size == 4096
"""


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="numbers of calls are of x86-64")
def test_calls_that_are_in_no_table_are_counted(spool, tmp_path):
    mount = spool("ext4")
    command = [sys.executable, "-S", "-c", UNSEEN, str(mount)]
    summary = record(Request(spools=[mount], output=tmp_path / "t", command=command))
    assert summary.command_status == 0
    meta = Trace.open(summary.trace).meta
    assert (meta["calls_through_descriptors"], meta["aio_calls"]) == (3, 1)
    info = [sys.executable, "-m", "spoolscope.cli.main", "info", str(summary.trace)]
    said = subprocess.run(info, capture_output=True, text=True, check=True).stdout
    assert "\n3 calls were by names below that of an open directory" in said
    assert "\n1 calls of io_submit had requests" in said
