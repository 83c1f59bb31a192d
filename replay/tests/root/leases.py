"""Holds leases below DIRECTORY, for which opens of the files wait; goes on at a line of its input.

Prints how long each open took, in ns.
"""

import fcntl
import os
import signal
import sys
import time

directory = sys.argv[1]
HELD_S = 0.3


def opened(name: str) -> int:
    return os.open(f"{directory}/{name}", os.O_RDWR | os.O_CREAT, 0o600)


def give_up(fd: int, name: str, flags: int) -> None:
    """Let a child open the file, and release the lease a while after the kernel asks for it."""
    if not os.fork():
        began = time.monotonic_ns()
        os.close(os.open(f"{directory}/{name}", flags))
        print(time.monotonic_ns() - began, flush=True)
        os._exit(0)
    signal.sigwait({signal.SIGIO})
    time.sleep(HELD_S)
    fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    assert os.wait()[1] == 0


signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGIO})
first, second = opened("first"), opened("second")
fcntl.fcntl(first, fcntl.F_SETLEASE, fcntl.F_WRLCK)
print("ready", flush=True)
sys.stdin.readline()
assert fcntl.fcntl(first, fcntl.F_GETLEASE) == fcntl.F_WRLCK
give_up(first, "first", os.O_RDONLY)
assert fcntl.fcntl(first, fcntl.F_GETLEASE) == fcntl.F_UNLCK
try:
    fcntl.fcntl(second, fcntl.F_SETLEASE, fcntl.F_RDLCK)  # it is open for writing
except BlockingIOError:
    pass
else:
    sys.exit("a lease that cannot be had")
os.close(second)
second = os.open(f"{directory}/second", os.O_RDONLY)
fcntl.fcntl(second, fcntl.F_SETLEASE, fcntl.F_RDLCK)
give_up(second, "second", os.O_WRONLY)
