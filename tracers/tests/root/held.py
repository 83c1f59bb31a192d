"""Takes locks and maps files below DIRECTORY, prints these as JSON, and waits for its input."""

import ctypes
import fcntl
import json
import mmap
import os
import struct
import sys
from pathlib import Path

SIZE = 65536
directory = sys.argv[1]
locks: list[list] = []
mappings: list[list] = []
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]


def opened(name: str) -> int:
    fd = os.open(f"{directory}/{name}", os.O_RDWR | os.O_CREAT, 0o600)
    os.write(fd, bytes(SIZE))
    return fd


def took(kind: str, exclusive: bool, name: str, fd: int, start: int, length: int | None) -> None:
    pid = None if kind == "ofd" else os.getpid()
    ino = os.fstat(fd).st_ino
    locks.append([pid, kind, exclusive, False, f"box/{name}", ino, start, length])


def mapped(name: str, prot: int, flags: int, length: int, offset: int, unlink: bool) -> None:
    """Map a file, and close its descriptor."""
    fd = opened(name)
    ino = os.fstat(fd).st_ino
    address = libc.mmap(None, length, prot, flags, fd, offset)
    assert address != ctypes.c_void_p(-1).value
    os.close(fd)
    if unlink:
        Path(directory, name).unlink()
    shared = flags == mmap.MAP_SHARED
    row = [os.getpid(), f"box/{name}", ino, address, length, offset, prot, shared]
    mappings.append(row)


posix = opened("posix")
fcntl.lockf(posix, fcntl.LOCK_EX, 10, 100)
took("posix", True, "posix", posix, 100, 10)
fcntl.lockf(posix, fcntl.LOCK_SH, 0, 4096)
took("posix", False, "posix", posix, 4096, None)
waiter = os.fork()
if not waiter:
    fcntl.lockf(posix, fcntl.LOCK_EX, 5, 105)
    os._exit(0)
locks.append([waiter, "posix", True, True, "box/posix", os.fstat(posix).st_ino, 105, 5])
ofd = opened("ofd")
fcntl.fcntl(ofd, fcntl.F_OFD_SETLK, struct.pack("hhqqi4x", fcntl.F_RDLCK, os.SEEK_SET, 7, 1, 0))
took("ofd", False, "ofd", ofd, 7, 1)
flock = opened("flock")
fcntl.flock(flock, fcntl.LOCK_EX)
took("flock", True, "flock", flock, 0, None)
os.close(opened("lease"))
lease = os.open(f"{directory}/lease", os.O_RDONLY)
fcntl.fcntl(lease, fcntl.F_SETLEASE, fcntl.F_RDLCK)
took("lease", False, "lease", lease, 0, None)
mapped("shared", mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_SHARED, 8192, 4096, unlink=False)
mapped("private", mmap.PROT_READ, mmap.MAP_PRIVATE, 4096, 0, unlink=False)
mapped("a gone one", mmap.PROT_READ, mmap.MAP_SHARED, SIZE, 0, unlink=True)
print(json.dumps([locks, mappings]), flush=True)
sys.stdin.read()
