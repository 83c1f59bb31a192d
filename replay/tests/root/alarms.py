"""An alarm ends the sleep for a lock below DIRECTORY, which two processes have in turn.

Writes to LOG how long each sleep lasted, ns by its own clock. A sleep that gets the lock is an
error.
"""

import fcntl
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

directory, log = Path(sys.argv[1]), Path(sys.argv[2])
ROUNDS = 4
Take = Callable[[int, int], None]


class WokenError(Exception):
    """Raised by the handler: without it Python repeats a call after a signal."""


def woken(*_: object) -> None:
    raise WokenError


def holder(take: Take, path: Path, asks_s: float, until_s: float, began: float) -> None:
    fd = os.open(path, os.O_RDWR)
    time.sleep(max(began + asks_s - time.monotonic(), 0))
    take(fd, fcntl.LOCK_EX)
    time.sleep(max(began + until_s - time.monotonic(), 0))
    os._exit(0)  # releases the lock


def sleeper(take: Take, path: Path, began: float) -> None:
    fd = os.open(path, os.O_RDWR)
    signal.signal(signal.SIGALRM, woken)
    time.sleep(max(began + 0.1 - time.monotonic(), 0))
    signal.setitimer(signal.ITIMER_REAL, 0.2)
    before = time.monotonic_ns()
    try:
        take(fd, fcntl.LOCK_EX)
    except WokenError:
        lasted = time.monotonic_ns() - before
        with log.open("a") as file:
            file.write(f"{lasted}\n")
        os._exit(0)
    os._exit(1)


def contest(take: Take, path: Path) -> None:
    """Run two processes that have the lock in turn, and a third that sleeps through both."""
    began = time.monotonic()
    for work in (
        lambda: holder(take, path, 0, 0.15, began),
        lambda: holder(take, path, 0.05, 0.4, began),
        lambda: sleeper(take, path, began),
    ):
        if not os.fork():
            work()
    for _ in range(3):
        assert os.wait()[1] == 0


# All sleep nearly always; on a busy machine each still asks, and is woken, when it is to.
os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
for name, take in (("posix", fcntl.lockf), ("flock", fcntl.flock)):
    (directory / name).touch()
    for _ in range(ROUNDS):
        contest(take, directory / name)
