"""The slow disk against the clocks of waiting programs."""

import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

from spoolscope.lab.place import format_image, journal_places, mounted
from spoolscope.lab.slowdisk import SlowDisk
from spoolscope.traces.errors import SpoolscopeError

pytestmark = [pytest.mark.root, pytest.mark.steady]
DELAY_NS = 30_000_000
ACTIONS = 10
SIZE = 128 << 20


@pytest.fixture(autouse=True)
def needs_fuse(require):
    require("root")
    if not Path("/dev/fuse").exists():
        require("fuse", reason="this kernel has no FUSE (/dev/fuse)")


@contextmanager
def slow(tmp_path, fstype):
    image = tmp_path / "image"
    format_image(image, fstype, SIZE if fstype != "xfs" else 320 << 20)
    with SlowDisk(image, tmp_path) as disk, mounted(disk.path, tmp_path / "mnt", fstype) as mount:
        (mount / "box").write_bytes(bytes(4096))
        subprocess.run(["sync", "-f", mount], check=True)
        yield disk, mount, image


def took(action) -> int:
    begin = time.monotonic_ns()
    action()
    return time.monotonic_ns() - begin


def quickest(action) -> int:
    """Return the time of an action without other work of the machine: the least of several."""
    return min(took(action) for _ in range(ACTIONS))


def overwrite(mount) -> None:
    """Change data of allocated blocks: fdatasync then needs no commit of the journal."""
    with (mount / "box").open("r+b") as file:
        file.write(os.urandom(4096))
        file.flush()
        os.fdatasync(file.fileno())


def create(mount, name: str) -> None:
    with (mount / name).open("wb") as file:
        os.fsync(file.fileno())


@pytest.mark.times
@pytest.mark.parametrize("fstype", ["ext4", "xfs", "btrfs"])
def test_a_flush_waits_and_nothing_else_does(tmp_path, require, fstype):
    require(fstype)
    with slow(tmp_path, fstype) as (disk, mount, _):
        quick = quickest(lambda: overwrite(mount))
        assert quick < DELAY_NS
        disk.delay("flush", DELAY_NS)
        more = []
        # On a busy machine some of them wait for something else, too.
        for _ in range(ACTIONS):
            known = len(disk.delayed())
            waited = took(lambda: overwrite(mount))
            new = disk.delayed()[known:]
            delayed = sum(request.end_ns - request.begin_ns for request in new)
            assert delayed >= DELAY_NS
            more.append(waited - delayed)
        logged = disk.delayed()
        disk.clear()
        assert quickest(lambda: overwrite(mount)) < DELAY_NS
        assert disk.delayed() == logged
    assert {request.kind for request in logged} == {"flush"}
    assert 0 <= min(more) <= quick + 0.3 * DELAY_NS


def test_only_the_journal_is_slow(tmp_path, require):
    require("ext4")
    delay_ns = 10 * DELAY_NS  # other tests use the disk, too
    with slow(tmp_path, "ext4") as (disk, mount, image):
        places = journal_places(image)
        for start, end in places:
            disk.delay("write", delay_ns, start, end)
        assert quickest(lambda: overwrite(mount)) < delay_ns
        assert disk.delayed() == []
        assert took(lambda: create(mount, "new")) >= delay_ns
        logged = disk.delayed()
    assert logged
    for request in logged:
        assert request.kind == "write"
        assert any(start <= request.offset < end for start, end in places)


def test_reads_wait_once_they_are_cold(tmp_path, require):
    require("ext4")
    with slow(tmp_path, "ext4") as (disk, mount, _):
        disk.delay("read", DELAY_NS)
        assert quickest((mount / "box").read_bytes) < DELAY_NS
        with (mount / "box").open("rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        assert took((mount / "box").read_bytes) >= DELAY_NS
        assert {(request.kind, request.size) for request in disk.delayed()} == {("read", 4096)}


def test_nonsense_is_refused(tmp_path, require):
    require("ext4")
    format_image(tmp_path / "image", "ext4", SIZE)
    with SlowDisk(tmp_path / "image", tmp_path) as disk, pytest.raises(SpoolscopeError) as error:
        disk.delay("erase", 1)
    assert "none of read, write, flush" in error.value.message


OWNER = """
import os, subprocess, sys, time
from pathlib import Path
from spoolscope.lab.slowdisk import SlowDisk
place = Path(sys.argv[1])
disk = SlowDisk(place / "image", place)
for mount in sys.argv[2:]:
    subprocess.run(["mount", "-o", "loop", disk.path, mount], check=True)
    Path(mount, "unwritten").write_bytes(bytes(1 << 20))
loops = [subprocess.check_output(["findmnt", "-no", "SOURCE", mount], text=True).strip()
         for mount in sys.argv[2:]]
print(disk._process.pid, os.minor(disk.path.stat().st_dev), *loops, flush=True)
time.sleep(60)
"""


def test_it_ends_with_its_owner(tmp_path, require):
    require("ext4")
    format_image(tmp_path / "image", "ext4", SIZE)
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER, tmp_path], stdout=subprocess.PIPE, text=True
    )
    pid = int(owner.stdout.readline().split()[0])
    owner.send_signal(signal.SIGKILL)
    owner.communicate()
    subprocess.run(["umount", "--lazy", tmp_path / "disk"], check=True)
    assert is_gone(pid, 60)


@pytest.mark.parametrize("killed", ["owner", "both"])
def test_the_last_of_a_mount_namespace_does_not_wait_for_itself(tmp_path, require, killed):
    """Kill the processes as with the lab: no other one is left to unmount the disk."""
    require("ext4")
    format_image(tmp_path / "image", "ext4", SIZE)
    (tmp_path / "mnt").mkdir()
    command = ["unshare", "--mount", "--propagation", "private", sys.executable, "-c", OWNER]
    owner = subprocess.Popen(
        [*command, tmp_path, tmp_path / "mnt"], stdout=subprocess.PIPE, text=True
    )
    *numbers, loop = owner.stdout.readline().split()
    pid, connection = map(int, numbers)
    if killed == "both":
        os.kill(pid, signal.SIGKILL)
    owner.send_signal(signal.SIGKILL)
    owner.communicate()
    gone = is_gone(pid, 60)
    if not gone:  # else every sync of the machine would hang, too
        abort(connection, tmp_path / "mnt")
    assert gone
    loops = subprocess.run(["losetup", "--all"], capture_output=True, text=True, check=True).stdout
    # Another disk may have been given one of the two numbers meanwhile.
    assert f"{loop}: [{connection:04}]:1 " not in loops


def is_gone(pid: int, seconds: float) -> bool:
    """Return True if a process has ended within that time."""
    deadline = time.monotonic() + seconds
    while Path(f"/proc/{pid}").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    return not Path(f"/proc/{pid}").exists()


def abort(connection: int, place: Path) -> None:
    """End a FUSE connection whose server hangs."""
    subprocess.run(["mount", "-t", "fusectl", "none", place], check=True)
    (place / str(connection) / "abort").write_text("1")
    subprocess.run(["umount", place], check=True)
