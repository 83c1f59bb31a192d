"""All processes are recorded, but only calls on the spool: strangers have no rows in a trace."""

import subprocess
import sys
from pathlib import Path

import pytest
from recordings import ask, recorded_during

from spoolscope.replay.run import replay
from spoolscope.traces.trace import Trace

pytestmark = [pytest.mark.root, pytest.mark.steady]

ROUNDS = 25
# A container without the spool; it ends at once.
CONTAINER = """set -e
mount -t tmpfs none "$0"
mkdir "$0/usr" "$0/old" "$0/proc"
mount --bind /usr "$0/usr"
for dir in lib lib64 bin; do ln -s usr/$dir "$0/$dir"; done
cd "$0"
pivot_root . old
mount -t proc none proc
umount -l old
for name in /etc/passwd /nothing /usr/nothing; do [ ! -e $name ]; done
exec true"""
# It makes calls like cron jobs and daemons, not on the spool; it prints their number at its end.
STRANGERS = f"""
import os, subprocess, sys, threading
for number in range({ROUNDS}):
    subprocess.run(["sh", "-c", "cd /; cd /tmp; cd ..; umask 027; true"], check=True)
    subprocess.run(["sh", "-c", "cd /usr && cd /; (exec true); sleep 0 & wait"], check=True)
    child = os.fork()
    if not child:
        os.chroot(sys.argv[1]); os.chdir("/")
        for name in ("/", "/nothing", "/etc/passwd", "/proc/self/maps"):
            os.access(name, os.F_OK)
        os.setgid(1234); os.setuid(1234)
        thread = threading.Thread(target=os.getpid)
        thread.start(); thread.join()
        os.closerange(3, 1 << 20); os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    subprocess.run(["unshare", "-m", "sh", "-c", sys.argv[2], sys.argv[1]], check=True)
os.sync()
print(number + 1)
"""


def begun(program: str, *words: object) -> "subprocess.Popen[str]":
    """Begin a program that waits for a line."""
    command = [sys.executable, "-S", "-c", f"input()\n{program}", *map(str, words)]
    return subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd="/usr"
    )


def test_an_idle_spool_beside_strangers_has_no_records(spool, tmp_path):
    mount, root, said = spool("ext4"), tmp_path / "root", []
    root.mkdir()
    process = begun(STRANGERS, root, CONTAINER)
    trace = recorded_during(lambda: said.extend(process.communicate("go\n")), mount, tmp_path)
    assert (said[0], process.returncode) == (f"{ROUNDS}\n", 0)
    assert ask(trace, "SELECT syscall, pid, comm FROM syscalls") == []
    assert ask(trace, "SELECT comm FROM threads WHERE kind = 'task'") == []
    assert trace.meta["complete"]
    assert trace.meta["paths_unresolved"] == 0
    assert (trace.meta["calls_unjudged"], trace.meta["unjudged"]) == (0, [])


# It works elsewhere, as another user and with another umask, until it reaches the spool by a name
# that is relative to a directory above it; then it leaves again.
LATE = """
import os, sys, threading
where = os.path.relpath(sys.argv[1], "/")
os.chdir("/"); os.umask(0o027); os.setgid(1234); os.setuid(1234)
if not os.fork():
    os.chdir("/"); os.umask(0o007)
    os.close(os.open(where + "/box/child", os.O_CREAT | os.O_WRONLY, 0o666))
    os._exit(0)
os.wait()
asked, done = threading.Event(), threading.Event()
def mask():
    asked.wait(); os.umask(0o077); done.set()
thread = threading.Thread(target=mask, daemon=True)
thread.start()
os.close(os.open(where + "/box/first", os.O_CREAT | os.O_WRONLY, 0o666))
asked.set(); done.wait(); thread.join()
os.close(os.open(where + "/box/second", os.O_CREAT | os.O_WRONLY, 0o666))
os.chdir(where + "/box")
os.rename("second", "third")
os.chdir("/")
"""


def test_a_process_is_recorded_from_its_first_call_on_the_spool(spool, tmp_path):
    mount = spool("ext4")
    (mount / "box").mkdir()
    (mount / "box").chmod(0o777)
    for above in mount.parents[:4]:
        above.chmod(above.stat().st_mode | 0o011)
    process = begun(LATE, mount)
    trace = recorded_during(lambda: process.communicate("go\n"), mount, tmp_path)
    assert process.returncode == 0
    named = ask(
        trace,
        "SELECT syscall, p.path, path_base FROM syscalls s LEFT JOIN paths p USING (path_id)"
        f" WHERE pid = {process.pid} AND syscall NOT IN ('close', 'exit_group', 'exit')"
        " ORDER BY ts_ns",
    )
    assert [call for call in named if call[0] != "umask"] == [
        ("openat", "box/first", 2), ("openat", "box/second", 2), ("chdir", "box", 2),
        ("rename", "box/second", 2), ("chdir", "/", 1),
    ]  # fmt: skip
    assert ("umask", None, 0) in named  # of a thread that made no call on the spool itself
    ids = ask(trace, "SELECT DISTINCT uid, gid, umask FROM threads WHERE n_calls > 0 ORDER BY 3")
    assert ids == [(1234, 1234, 0o007), (1234, 1234, 0o027)]
    assert trace.meta["paths_unresolved"] == 0
    replays(trace, tmp_path)
    made = {file.name: (file.stat().st_mode & 0o777) for file in (mount / "box").iterdir()}
    assert made == {"child": 0o660, "first": 0o640, "third": 0o600}


# A child holds a lock that it inherited with its descriptor; it makes no call on the spool, and
# ends after its parent. Then another child holds one, and closes all its descriptors at once.
HEIRS = """
import errno, fcntl, os, sys, time
def wait(fd):
    tries = 0
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return tries
        except BlockingIOError:
            tries += 1
            time.sleep(0.05)
name = sys.argv[1] + "/lock"
for closes in (False, True):
    if not os.fork():
        fd = os.open(name, os.O_CREAT | os.O_RDWR)
        os.set_inheritable(fd, True)
        fcntl.flock(fd, fcntl.LOCK_EX)
        if not os.fork():
            if closes:
                time.sleep(0.3)
                os.closerange(3, 1 << 20)
                time.sleep(0.3)
                os._exit(0)
            os.execlp("sleep", "sleep", "0.3")
        os._exit(0)
    os.wait()
    fd = os.open(name, os.O_RDWR)
    print(wait(fd), flush=True)
    os.close(fd)
"""


def test_what_children_inherit_is_known_without_calls_of_theirs(spool, tmp_path):
    mount, said = spool("ext4"), []
    process = begun(HEIRS, mount)
    trace = recorded_during(lambda: said.extend(process.communicate("go\n")), mount, tmp_path)
    assert process.returncode == 0
    tries = [int(line) for line in said[0].split()]
    assert min(tries) > 0
    assert ask(trace, "SELECT count(*) FROM syscalls WHERE comm = 'sleep'") == [(0,)]
    assert ask(trace, "SELECT count(*) FROM threads WHERE comm = 'sleep'") == [(1,)]
    closed = ask(trace, "SELECT count(*), count(DISTINCT pid) FROM syscalls"
                 " WHERE syscall = 'close_range'")  # fmt: skip
    assert closed == [(1, 1)]
    refused = ask(trace, "SELECT count(*) FROM syscalls WHERE syscall = 'flock' AND errno = 11")
    assert refused == [(sum(tries),)]
    replays(trace, tmp_path)


def replays(trace: Trace, tmp_path: Path) -> None:
    """Compare a replay, as fast as possible, with the recording."""
    (row,) = replay(trace.path, ["ext4"], tmp_path / "replayed", pace="afap")
    told = (Path(row["run"]) / "divergences.json").read_text()
    assert row["divergent"] == 0, told
    assert row["final_state"]["mismatched"] == 0, row["final_state"]
    assert row["executed"] > 0
