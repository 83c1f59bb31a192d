"""Deadlocks of processes over locks of one file: the kernel refuses a call that closes a circle.

Usage: deadlock.py SPOOL. Prints how often a lock was refused.
"""

import errno
import fcntl
import os
import sys
import time
from multiprocessing import Barrier, Process
from pathlib import Path

ROUNDS, FCNTL = 10, "72"


def locked(fd: int, byte: int, kind: int = fcntl.LOCK_EX) -> bool:
    """Wait for the lock of one byte; return False if that would close a circle."""
    try:
        fcntl.lockf(fd, kind, 1, byte)
    except OSError as error:
        if error.errno != errno.EDEADLK:
            raise
        return False
    return True


def sleeps_in_fcntl(pid: int) -> bool:
    """Return whether a process sleeps in fcntl."""
    return Path(f"/proc/{pid}/syscall").read_text().split()[0] == FCNTL


def take_turns(fd: int, number: int, of: int, meet, pids: list[int]) -> None:
    """Hold byte ``number`` and ask for the next; the last process asks when all others sleep."""
    for turn in range(ROUNDS):
        locked(fd, number)
        meet.wait()
        if number == of - 1:
            while not all(sleeps_in_fcntl(pid) for pid in pids):
                time.sleep(0.001)
        kind = fcntl.LOCK_SH if turn % 3 == 2 else fcntl.LOCK_EX
        granted = locked(fd, (number + 1) % of, kind)
        assert granted == (number < of - 1)
        os.pwrite(fd, b"%d" % number * (number + 1), 4 * turn)
        fcntl.lockf(fd, fcntl.LOCK_UN, 0, 0)
        meet.wait()


def circle(path: Path, of: int) -> None:
    """Let some processes make a circle again and again."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    meet, pids = Barrier(of), []
    kept.append(meet)
    for number in range(of):
        process = Process(target=take_turns, args=(fd, number, of, meet, pids))
        process.start()
        pids.append(process.pid)
        processes.append(process)


if __name__ == "__main__":
    processes: list[Process] = []
    kept: list[object] = []  # else the next barrier would lie in the memory of the last
    spool = Path(sys.argv[1])
    circle(spool / "two", 2)
    circle(spool / "three", 3)
    for process in processes:
        process.join()
    assert not any(process.exitcode for process in processes)
    print(2 * ROUNDS)
