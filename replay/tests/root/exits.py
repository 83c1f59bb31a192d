"""Children below DIRECTORY end, or execute, with a lock; a later try for it does not wait."""

import contextlib
import fcntl
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable

directory = sys.argv[1]
ROUNDS = 150


def child(take: Callable[[int, int], None], name: str, threaded: bool) -> None:
    """End a child that holds the lock and has the file open; perhaps with a thread."""
    if not os.fork():
        if threaded:
            threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
        take(os.open(f"{directory}/{name}", os.O_RDWR), fcntl.LOCK_EX)
        os._exit(0)
    assert os.wait()[1] == 0


def executes(fd: int, kept: bool) -> None:
    """Try for the POSIX lock of a child that executed: exec keeps it unless it closed the file."""
    told, tell = os.pipe()
    stay, go = os.pipe()
    if not os.fork():
        fcntl.lockf(fd, fcntl.LOCK_EX)
        fcntl.fcntl(fd, fcntl.F_SETFD, 0 if kept else fcntl.FD_CLOEXEC)
        os.dup2(stay, 0)
        fcntl.fcntl(tell, fcntl.F_DUPFD_CLOEXEC, 100)  # exec closes it after the file
        os.execvp("cat", ["cat"])
    os.close(tell)
    assert not os.read(told, 1)
    try:
        fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        assert not kept
    except BlockingIOError:
        assert kept
    for end in (told, stay, go):
        os.close(end)
    assert os.wait()[1] == 0
    fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    fcntl.lockf(fd, fcntl.LOCK_UN)


for name, take in (("posix", fcntl.lockf), ("flock", fcntl.flock)):
    fd = os.open(f"{directory}/{name}", os.O_RDWR | os.O_CREAT, 0o600)
    for at in range(ROUNDS):
        child(take, name, threaded=bool(at % 3 == 0))
        take(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        take(fd, fcntl.LOCK_UN)
    for at in range(ROUNDS if take is fcntl.lockf else 0):
        executes(fd, kept=bool(at % 2))
with contextlib.suppress(OSError):
    os.dup2(fd, 1 << 30)  # past any limit
subprocess.run(["true"], check=True)  # CPython calls close_range up to INT_MAX
