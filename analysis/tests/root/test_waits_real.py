"""Waits for other things than a disk, caused on purpose; the truth is the injector's own clock."""

import sys
from contextlib import contextmanager
from pathlib import Path

import pytest

from spoolscope.analysis.explain import explain
from spoolscope.lab.slow_server import serving

pytestmark = [pytest.mark.root, pytest.mark.times]
PYTHON = Path(sys.executable).name

# The child freezes, waits until the parent writes, and thaws; the parent prints the length of its
# calls, begun while the filesystem was frozen.
FROZEN = """
    import fcntl, os, sys, time
    FREEZE, THAW = 0xC0045877, 0xC0045878
    os.chdir(sys.argv[1])
    held = os.open("held", os.O_RDWR | os.O_CREAT)
    root = os.open("/proc/self/cwd", os.O_RDONLY)
    calls = [
        lambda: os.write(held, b"x"), lambda: os.open("new", os.O_CREAT | os.O_RDWR),
        lambda: os.ftruncate(held, 100), lambda: os.rename("held", "moved"),
        lambda: os.mkdir("box"), lambda: os.unlink("moved"),
    ]
    said = []
    for call in calls:
        ready, go = os.pipe()
        if not os.fork():
            fcntl.ioctl(root, FREEZE, 0)
            os.write(go, b"x")
            time.sleep(0.1)
            fcntl.ioctl(root, THAW, 0)
            os._exit(0)
        os.read(ready, 1)
        begin = time.monotonic_ns()
        call()
        said.append(time.monotonic_ns() - begin)
        assert os.wait()[1] == 0
    open(f"{sys.argv[1]}.said", "w").write(str(sum(said)))
"""


@pytest.mark.parametrize("fstype", ["ext4", "xfs", "btrfs"])
def test_a_frozen_filesystem_is_found_with_its_length(spool, recorded, fstype):
    mount = spool(fstype)
    found = explain(recorded(mount, FROZEN))
    took_ns = int(Path(f"{mount}.said").read_text())
    print(fstype, took_ns, found.causes, found.unknown[:3])
    assert took_ns > 500e6
    runnable_ns = sum(found.causes.get(c, 0) for c in ("runq", "preempt", "steal"))
    assert 0.95 * took_ns - runnable_ns < found.causes["frozen"] < 1.02 * took_ns
    assert found.named_share >= 0.99
    assert found.insights[0].kind == "frozen_filesystem"


READER = """
    import os, sys
    os.chdir(sys.argv[1])
    for name in range(8):
        os.stat(str(name))
    for name in range(4):
        fd = os.open(str(name), os.O_RDONLY)
        while os.read(fd, 8192):
            pass
        os.close(fd)
"""


def _delayed_ns(log):
    return sum(int(line.split()[1]) for line in log.read_text().splitlines())


@contextmanager
def fuse_server(place, delay_ms):
    """Yield the mount point, a function for the delay of all answers (ns), and the pid."""
    mount, log = place / "served", place / "served.log"
    with serving(mount, delay_ms, log) as pid:
        yield mount, lambda: _delayed_ns(log), pid


def test_a_slow_server_is_found_with_its_length(require, recorded, tmp_path):
    require("bpf")
    if not Path("/dev/fuse").exists():
        require("fuse", reason="this kernel has no FUSE (/dev/fuse)")
    with fuse_server(tmp_path, 20) as (mount, delayed_ns, server):
        before_ns = delayed_ns()
        found = explain(recorded(mount, READER))
        took_ns = delayed_ns() - before_ns
    print(took_ns, {n: c.causes for n, c in found.by_syscall.items()}, found.unknown[:3])
    assert took_ns > 300e6
    assert found.causes["server"] == pytest.approx(took_ns, rel=0.1)
    assert found.by_syscall["read"].causes["server"] > 100e6
    assert found.named_share >= 0.99
    told = found.insights[0]
    assert (told.kind, told.culprit) == ("slow_server", f"{PYTHON} (process {server})")


# Before it runs a program, the child waits for the open of a FIFO by another.
VFORK = """
    import os, sys, time
    fifo = sys.argv[1] + "/fifo"
    os.mkfifo(fifo)
    if not os.fork():
        time.sleep(0.3)
        os.close(os.open(fifo, os.O_WRONLY))
        os._exit(0)
    begin = time.monotonic_ns()
    opens = [(os.POSIX_SPAWN_OPEN, 0, fifo, os.O_RDONLY, 0)]
    child = os.posix_spawn("/bin/true", ["true"], {}, file_actions=opens)
    open(f"{sys.argv[1]}.said", "w").write(str(time.monotonic_ns() - begin))
    os.waitpid(child, 0)
    os.wait()
"""


def test_vfork_and_the_open_of_a_fifo_are_waits_for_another_program(spool, recorded):
    mount = spool("ext4")
    found = explain(recorded(mount, VFORK))
    took_ns = int(Path(f"{mount}.said").read_text())
    print(took_ns, {n: c.causes for n, c in found.by_syscall.items()}, found.unknown[:3])
    waited = {n: c.causes["process"] for n, c in found.by_syscall.items() if "process" in c.causes}
    of_fifo = waited.pop("open", 0) + waited.pop("openat", 0)
    assert of_fifo == pytest.approx(took_ns, rel=0.1)
    assert sum(waited.values()) == pytest.approx(took_ns, rel=0.1)
    assert set(waited) <= {"vfork", "clone", "clone3", "execve"}
    assert found.filesystem_ns < found.latency_ns - 1.8 * took_ns


# The listener permits each open after 50 ms.
SCANNED = """
    import ctypes, os, struct, sys, time
    FAN_CLASS_CONTENT, FAN_MARK_ADD, FAN_MARK_MOUNT, FAN_OPEN_PERM = 4, 1, 0x10, 0x10000
    libc = ctypes.CDLL(None, use_errno=True)
    said = open(f"{sys.argv[1]}.said", "w")
    for name in range(6):
        open(f"{sys.argv[1]}/{name}", "w").close()
    group = libc.fanotify_init(FAN_CLASS_CONTENT, os.O_RDONLY)
    assert group >= 0, ctypes.get_errno()
    mark = ctypes.c_uint64(FAN_OPEN_PERM)
    flags = FAN_MARK_ADD | FAN_MARK_MOUNT
    assert libc.fanotify_mark(group, flags, mark, -100, sys.argv[1].encode()) == 0
    scanner = os.fork()
    if not scanner:
        for _ in range(6):
            event = os.read(group, 24)
            fd = struct.unpack_from("=IBBHQi", event)[5]
            time.sleep(0.05)
            os.write(group, struct.pack("=iI", fd, 1))
            os.close(fd)
        os._exit(0)
    os.close(group)
    begin = time.monotonic_ns()
    for name in range(6):
        os.close(os.open(f"{sys.argv[1]}/{name}", os.O_RDONLY))
    said.write(f"{time.monotonic_ns() - begin} {scanner}")
    os.waitpid(scanner, 0)
"""


def test_a_scanner_is_found_with_its_length(spool, recorded):
    mount = spool("ext4")
    found = explain(recorded(mount, SCANNED))
    took_ns, scanner = map(int, Path(f"{mount}.said").read_text().split())
    print(took_ns, {n: c.causes for n, c in found.by_syscall.items()}, found.unknown[:3])
    assert took_ns > 300e6
    assert found.causes["scanner"] == pytest.approx(took_ns, rel=0.05)
    assert set(found.by_syscall["openat"].causes) & {"scanner"}
    assert found.named_share >= 0.99
    told = found.insights[0]
    assert (told.kind, told.culprit) == ("scanner", f"{PYTHON} (process {scanner})")
