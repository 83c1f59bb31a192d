"""Further roles of ``lab.load``, each of which makes one trouble, or what looks like it.

Run as a program in the same way: one argument of JSON (see ``lab.load``).
"""

import ctypes
import errno
import fcntl
import mmap
import os
import random
import struct
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from spoolscope.lab.load import MESSAGE, ROLES, Worker, main, make_box, write_message

BIG, WIDE = "big", "wide"
"""A file of many pages; a directory of many names. ``trouble_fill`` makes them."""
PAGE = 4096
PIECES = 64
"""Pieces of 256 KiB after which ``stream`` begins anew."""
_FIFREEZE, _FITHAW = 0xC0045877, 0xC0045878
_FAN_CLASS_CONTENT, _FAN_OPEN, _FAN_OPEN_PERM = 4, 0x20, 0x10000
_FAN_MARK_ADD, _FAN_MARK_MOUNT, _FAN_ALLOW = 1, 0x10, 1
_FAN_EVENT = "=IBBHQii"
"""Length, version, reserved, length of the head, mask, descriptor, process."""


def _names(worker: Worker) -> Iterator[Path]:
    """Yield names of the wide directory as listed, or sorted by inode (``sorted``)."""
    with os.scandir(worker.mount / WIDE) as found:
        entries = list(found)
    if worker.role.get("sorted"):
        entries.sort(key=os.DirEntry.inode)
    yield from (Path(entry.path) for entry in entries)


def look_at_all(worker: Worker) -> None:
    """List the wide directory and look at each file, as a backup does."""
    for path in _names(worker):
        if not worker.goes_on():
            return
        path.stat()


def list_again(worker: Worker) -> None:
    """List a directory again and again, as a client does that asks for new mail."""
    place = worker.mount / worker.role["directory"]
    while worker.goes_on():
        list(place.iterdir())
        worker.think()


def look_for(worker: Worker) -> None:
    """Look in each folder for a name: one that is there, or one that is not (``absent``)."""
    for n, folder in enumerate(sorted((worker.mount / "folders").iterdir())):
        if not worker.goes_on():
            return
        with suppress(FileNotFoundError):
            (folder / (f"absent.{n}" if worker.role["absent"] else "0.host")).stat()


def look_up_absent(worker: Worker) -> None:
    """Look for names that the wide directory does not have, a new one each time."""
    n = 0
    while worker.goes_on():
        with suppress(FileNotFoundError):
            (worker.mount / WIDE / f"absent.{worker.number}.{n}").stat()
        n += 1
        worker.think(0.2)


def stream(worker: Worker) -> None:
    """Write a large file from its begin to its end without a sync, again and again."""
    fd = os.open(worker.mount / f"stream{worker.number}", os.O_RDWR | os.O_CREAT)
    data, n = bytes(1 << 18), 0
    while worker.goes_on():
        if n == PIECES:
            os.ftruncate(fd, n := 0)
        os.pwrite(fd, data, n << 18)
        n += 1
        worker.think()


def read_directly(worker: Worker) -> None:
    """Read the big file past the cache, as a backup does."""
    fd = os.open(worker.mount / BIG, os.O_RDONLY | os.O_DIRECT)
    size = os.fstat(fd).st_size
    with mmap.mmap(-1, 1 << 18) as room:
        while worker.goes_on():
            os.preadv(fd, [room], random.randrange(size >> 18) << 18)


def touch_pages(worker: Worker) -> None:
    """Touch pages of the big file through a mapping, or read them by calls (``by_calls``)."""
    fd = os.open(worker.mount / BIG, os.O_RDONLY)
    size = os.fstat(fd).st_size
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)
    with mmap.mmap(fd, size, prot=mmap.PROT_READ) as mapped:
        mapped.madvise(mmap.MADV_RANDOM)
        while worker.goes_on():
            at = random.randrange(size // PAGE) * PAGE
            if worker.role.get("by_calls"):
                os.pread(fd, 1, at)
            else:
                mapped[at]


def hold_dotlock(worker: Worker) -> None:
    """Make a lock file, work meanwhile, remove it; try again every 10 ms if it is there."""
    own = f".{worker.number}" if worker.role.get("own") else ""
    lock = worker.mount / f"mbox{own}.lock"
    while worker.goes_on():
        try:
            os.close(os.open(lock, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
        except FileExistsError:
            time.sleep(0.01)
            continue
        time.sleep(worker.role["hold_ms"] / 1e3)
        lock.unlink()
        worker.think(5)


def append_directly(worker: Worker) -> None:
    """Append past the cache to one file that all share, or to a file of its own (``own``)."""
    own = worker.number if worker.role.get("own") else ""
    flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_DIRECT
    fd = os.open(worker.mount / f"box{own}.mbox", flags)
    with mmap.mmap(-1, PAGE) as room:
        while worker.goes_on():
            os.writev(fd, [room])
            worker.think(0.5)


def freeze(worker: Worker) -> None:
    """Freeze the filesystem for some time, or only sync it (``only_sync``)."""
    fd = os.open(worker.mount, os.O_RDONLY)
    libc = ctypes.CDLL(None)
    while worker.goes_on():
        if worker.role.get("only_sync"):
            libc.syncfs(fd)
        else:
            fcntl.ioctl(fd, _FIFREEZE, 0)
            try:
                time.sleep(worker.role["hold_ms"] / 1e3)
            finally:
                fcntl.ioctl(fd, _FITHAW, 0)
        worker.think(100)


def scan(worker: Worker) -> None:
    """Permit each open of the mount after a pause, or only listen to them (``only_listen``)."""
    libc = ctypes.CDLL(None, use_errno=True)
    group = libc.fanotify_init(_FAN_CLASS_CONTENT, os.O_RDONLY)
    mask = ctypes.c_uint64(_FAN_OPEN if worker.role.get("only_listen") else _FAN_OPEN_PERM)
    flags = _FAN_MARK_ADD | _FAN_MARK_MOUNT
    if group < 0 or libc.fanotify_mark(group, flags, mask, -100, os.fsencode(worker.mount)):
        raise OSError(ctypes.get_errno(), "fanotify")
    os.set_blocking(group, False)
    while worker.goes_on():
        time.sleep(worker.role["pause_ms"] / 1e3)
        with suppress(BlockingIOError):
            events = os.read(group, PAGE)
            for *_, fd, _pid in struct.iter_unpack(_FAN_EVENT, events):
                if not worker.role.get("only_listen"):
                    os.write(group, struct.pack("=iI", fd, _FAN_ALLOW))
                os.close(fd)
    os.close(group)  # lets go what still waits


def fill_up(worker: Worker) -> None:
    """Append to a file until no block is left, and on; or make a name twice (``twice``)."""
    fd = os.open(worker.mount / f"more{worker.number}", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    (worker.mount / "there").touch()
    while worker.goes_on():
        try:
            if worker.role.get("twice"):
                os.close(os.open(worker.mount / "there", os.O_CREAT | os.O_EXCL | os.O_WRONLY))
            else:
                os.write(fd, bytes(1 << 18))
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EEXIST):
                raise
            worker.think()


def deliver_whatever(worker: Worker) -> None:
    """Deliver with syncs; errors of the disk are no reason to end."""
    make_box(box := worker.box())
    n = 0
    while worker.goes_on():
        with suppress(OSError):
            write_message(box / "tmp" / f"{n}.{os.getpid()}")
        n += 1
        worker.think()


def sync_directory(worker: Worker) -> None:
    """Sync a new file and then its directory, without or with (``rename``) a rename between."""
    make_box(box := worker.box())
    folders = [os.open(box / name, os.O_RDONLY) for name in ("tmp", "new")]
    n = 0
    while worker.goes_on():
        path = box / "tmp" / f"{n}.{os.getpid()}"
        write_message(path)
        if worker.role.get("rename"):
            path.rename(box / "new" / path.name)
        os.fsync(folders[1 if worker.role.get("rename") else 0])
        n += 1
        worker.think()


def append_synced(worker: Worker) -> None:
    """Append so many bytes to one file at a time (``bytes``), with a sync after each."""
    fd = os.open(worker.mount / f"log{worker.number}", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    while worker.goes_on():
        os.write(fd, bytes(worker.role["bytes"]))
        os.fdatasync(fd)
        worker.think()


def read_all(worker: Worker) -> None:
    """Open and read messages that are in the cache, again and again."""
    paths = sorted((worker.mount / "folders").glob("*/*.host"))
    while worker.goes_on():
        path = random.choice(paths)
        fd = os.open(path, os.O_RDONLY)
        os.read(fd, 1 << 14)
        os.close(fd)
        worker.think(0.5)


def fetch_served(worker: Worker) -> None:
    """Read files of a server by names that were never asked for, or one page again (``again``)."""
    n = worker.number
    kept = os.open(worker.mount / str(n), os.O_RDONLY)
    while worker.goes_on():
        if worker.role.get("again"):
            os.pread(kept, PAGE, 0)
            continue
        fd = os.open(worker.mount / str(n), os.O_RDONLY)
        os.read(fd, PAGE)
        os.close(fd)
        n += worker.role["n"]
        worker.think()


def change_names(worker: Worker) -> None:
    """Create and rename files in its own folder without a sync, with pauses."""
    make_box(box := worker.box())
    n = 0
    while worker.goes_on():
        write_message(path := box / "tmp" / str(n), durable=False, size=0)
        path.rename(box / "new" / str(n))
        n += 1
        worker.think()


def at_once(worker: Worker) -> None:
    """Overwrite a file in small pieces without a pause, at real-time priority if ``first``."""
    if worker.role.get("first"):
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(10))
    fd = os.open(worker.mount / f"file{worker.number}", os.O_RDWR | os.O_CREAT)
    data = bytes(1 << 18)
    while worker.goes_on():
        os.pwrite(fd, data, 0)
        if worker.role.get("first"):
            time.sleep(0.001)


def keep_reading(worker: Worker) -> None:
    """Read the big file and keep a part of it dirty, in less memory than it has."""
    fd = os.open(worker.mount / BIG, os.O_RDWR)
    size = os.fstat(fd).st_size
    while worker.goes_on():
        at = random.randrange(size >> 16) << 16
        os.pread(fd, 1 << 16, at)
        os.pwrite(fd, MESSAGE[:PAGE], at)


ROLES |= {
    role.__name__: role
    for role in (look_at_all, list_again, look_for, look_up_absent, stream, read_directly,
                 touch_pages, hold_dotlock, append_directly, freeze, scan, fill_up,
                 deliver_whatever, sync_directory, append_synced, read_all, fetch_served,
                 change_names, at_once, keep_reading)
}  # fmt: skip

if __name__ == "__main__":
    sys.exit(main())
