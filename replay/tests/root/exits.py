"""Children below DIRECTORY end with a lock; who comes then tries for it, and does not wait."""

import fcntl
import os
import sys
from collections.abc import Callable

directory = sys.argv[1]
ROUNDS = 150


def child(take: Callable[[int, int], None], name: str) -> None:
    """End without giving up the lock, nor closing the file."""
    if not os.fork():
        take(os.open(f"{directory}/{name}", os.O_RDWR), fcntl.LOCK_EX)
        os._exit(0)
    assert os.wait()[1] == 0


for name, take in (("posix", fcntl.lockf), ("flock", fcntl.flock)):
    fd = os.open(f"{directory}/{name}", os.O_RDWR | os.O_CREAT, 0o600)
    for _ in range(ROUNDS):
        child(take, name)
        take(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        take(fd, fcntl.LOCK_UN)
