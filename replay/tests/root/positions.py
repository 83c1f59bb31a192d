"""Locks of bytes that are counted from the position, as lockf(3) does; run in the spool.

Two processes have a position each, and print where they lock; then two share one, and lock
wherever that happens to be. Each holds one lock at a time, so that there is no deadlock.
"""

import fcntl
import os
import random

PLACES, ROUNDS = 20, 400
LENGTH = 8


def locks(fd: int, seed: int, *, told: bool) -> None:
    """Lock bytes at random places, and unlock them all before the next."""
    chosen = random.Random(seed)
    for _ in range(ROUNDS):
        place = chosen.randrange(PLACES)
        os.lseek(fd, place, os.SEEK_SET)
        if told:
            os.write(1, f"{os.getpid()} {place}\n".encode())
        fcntl.lockf(fd, fcntl.LOCK_EX, LENGTH, 0, os.SEEK_CUR)
        os.sched_yield()
        fcntl.lockf(fd, fcntl.LOCK_UN)


def two(path: str, *, shared: bool) -> None:
    """Lock in two processes at once."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    for seed in range(2):
        if not os.fork():
            own = fd if shared else os.open(path, os.O_RDWR)
            locks(own, seed, told=not shared)
            os._exit(0)
    for _ in range(2):
        assert os.wait()[1] == 0


two("own", shared=False)
two("shared", shared=True)
