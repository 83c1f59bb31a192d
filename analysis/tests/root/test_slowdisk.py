"""The slow disk against the clocks of those who wait for it."""

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

pytestmark = pytest.mark.root
DELAY_NS = 30_000_000
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
        os.sync()
        yield disk, mount, image


def took(action) -> int:
    begin = time.monotonic_ns()
    action()
    return time.monotonic_ns() - begin


def overwrite(mount) -> None:
    """Change data that has its blocks: fdatasync then needs no commit of the journal."""
    with (mount / "box").open("r+b") as file:
        file.write(os.urandom(4096))
        file.flush()
        os.fdatasync(file.fileno())


def create(mount, name: str) -> None:
    with (mount / name).open("wb") as file:
        os.fsync(file.fileno())


@pytest.mark.parametrize("fstype", ["ext4", "xfs", "btrfs"])
def test_a_flush_waits_and_nothing_else_does(tmp_path, require, fstype):
    require(fstype)
    with slow(tmp_path, fstype) as (disk, mount, _):
        quick = min(took(lambda: overwrite(mount)) for _ in range(3))
        disk.delay("flush", DELAY_NS)
        waits, spent = [], []
        for _ in range(5):
            known = len(disk.delayed())
            waits.append(took(lambda: overwrite(mount)))
            new = disk.delayed()[known:]
            spent.append(sum(request.end_ns - request.begin_ns for request in new))
        logged = disk.delayed()
        disk.clear()
        assert took(lambda: overwrite(mount)) < DELAY_NS
        assert disk.delayed() == logged
    assert quick < DELAY_NS
    assert {request.kind for request in logged} == {"flush"}
    assert min(spent) >= DELAY_NS
    more = [waited - delayed for waited, delayed in zip(waits, spent, strict=True)]
    assert min(more) >= 0
    # A busy machine may make one of them wait for something else, too.
    assert min(more) <= quick + 0.3 * DELAY_NS


def test_only_the_journal_is_slow(tmp_path, require):
    require("ext4")
    with slow(tmp_path, "ext4") as (disk, mount, image):
        places = journal_places(image)
        for start, end in places:
            disk.delay("write", DELAY_NS, start, end)
        assert took(lambda: overwrite(mount)) < DELAY_NS
        assert disk.delayed() == []
        assert took(lambda: create(mount, "new")) >= DELAY_NS
        logged = disk.delayed()
    assert logged
    for request in logged:
        assert request.kind == "write"
        assert any(start <= request.offset < end for start, end in places)


def test_reads_wait_once_they_are_cold(tmp_path, require):
    require("ext4")
    with slow(tmp_path, "ext4") as (disk, mount, _):
        disk.delay("read", DELAY_NS)
        assert took((mount / "box").read_bytes) < DELAY_NS
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
import sys, time
from pathlib import Path
from spoolscope.lab.slowdisk import SlowDisk
place = Path(sys.argv[1])
disk = SlowDisk(place / "image", place)
print(disk._process.pid, flush=True)
time.sleep(60)
"""


def test_it_ends_with_its_owner(tmp_path, require):
    require("ext4")
    format_image(tmp_path / "image", "ext4", SIZE)
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER, tmp_path], stdout=subprocess.PIPE, text=True
    )
    pid = int(owner.stdout.readline())
    owner.send_signal(signal.SIGKILL)
    owner.communicate()
    deadline = time.monotonic() + 5
    while Path(f"/proc/{pid}").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    subprocess.run(["umount", "--lazy", tmp_path / "disk"], check=True)
    assert not Path(f"/proc/{pid}").exists()
