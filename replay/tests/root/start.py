"""Holds files, a lock and a mapping below DIRECTORY; goes on at a line of its input.

A child shares the position of a file without a name, another waits for the lock.
"""

import fcntl
import mmap
import os
import sys
import time

directory = sys.argv[1]
ready, done = os.pipe(), os.pipe()


def opened(name: str, size: int) -> int:
    fd = os.open(f"{directory}/{name}", os.O_RDWR | os.O_CREAT, 0o600)
    os.write(fd, bytes(size))
    os.lseek(fd, 0, os.SEEK_SET)
    return fd


def reader() -> None:
    """Read after the parent has read."""
    os.read(ready[0], 1)
    assert os.lseek(gone, 0, os.SEEK_CUR) == 200
    assert len(os.read(gone, 100)) == 100
    os.write(done[1], b"x")


def waiter() -> None:
    """Wait for the lock."""
    os.read(ready[0], 1)
    os.write(done[1], b"x")
    fcntl.lockf(locked, fcntl.LOCK_EX)
    os.write(locked, b"mine")


locked, gone, mapped = opened("index", 100), opened("gone", 1000), opened("cache", 16 * 4096)
os.unlink(f"{directory}/gone")  # noqa: PTH108
os.read(gone, 100)
fcntl.lockf(locked, fcntl.LOCK_EX)
os.fsync(mapped)  # clean pages: the first write to each is a fault
memory = mmap.mmap(mapped, 16 * 4096)
for work in (reader, waiter):
    if not os.fork():
        work()
        os._exit(0)
print("ready", flush=True)
sys.stdin.readline()
os.read(gone, 100)
os.write(ready[1], b"xx")
for _ in range(2):
    os.read(done[0], 1)
time.sleep(0.4)
for page in (3, 7):
    memory[page * 4096] = 1
fcntl.lockf(locked, fcntl.LOCK_UN)
for _ in range(2):
    assert os.wait()[1] == 0
assert os.lseek(gone, 0, os.SEEK_CUR) == 300
assert os.fstat(gone).st_nlink == 0
