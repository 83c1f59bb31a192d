"""Calls of backup tools, indexers and multi-threaded programs: tools.py SPOOL OTHER_SPOOL OUTSIDE.

Prints as JSON how many calls failed because of things around the spool, and how many by a limit.
"""

# The calls themselves are the test, so they are made by their own names.
# ruff: noqa: PTH123

import errno
import json
import mmap
import os
import queue
import resource
import shutil
import signal
import socket
import stat
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from lacking import fails

NOBODY = 65_534
LIMIT = 100_000
failed = Counter[int]()


def main() -> None:
    spool, other, outside = sys.argv[1:]
    os.chdir(spool)
    surroundings(other, outside)
    times()
    pieces()
    direct()
    take_turns()
    sockets(spool)
    limit()
    around, used_up = failed[errno.EXDEV] + failed[errno.ETXTBSY], failed[errno.EFBIG]
    print(json.dumps({"around": around, "used_up": used_up}))


def surroundings(other: str, outside: str) -> None:
    """Fail because of another filesystem, or a program that runs."""
    with open("mail", "wb") as file:
        file.write(b"m" * 5000)
    for call in (os.rename, os.link):
        with fails(failed, errno.EXDEV):
            call("mail", f"{other}/mail")
    copy = os.open(f"{outside}/copy", os.O_CREAT | os.O_RDWR)
    with fails(failed, errno.EXDEV):
        os.copy_file_range(os.open("mail", os.O_RDONLY), copy, 5000)
    os.write(copy, b"o" * 70_000)
    restored = os.open("restored", os.O_CREAT | os.O_RDWR)
    assert os.sendfile(restored, copy, 0, 1 << 20) == 70_000
    assert os.fstat(restored).st_size == os.lseek(restored, 0, os.SEEK_END) == 70_000
    assert os.pread(restored, 100, 69_950) == b"o" * 50
    shutil.copy("/bin/sleep", "program")
    with subprocess.Popen(["./program", "9"]) as program:
        with fails(failed, errno.ETXTBSY):
            os.open("program", os.O_WRONLY | os.O_TRUNC)
        program.kill()


def times() -> None:
    """Set times as a user that may write: the present time is allowed, no other one is."""
    with open("shared", "wb") as file:
        os.fchmod(file.fileno(), 0o666)
    child = os.fork()
    if not child:
        os.setgid(NOBODY)
        os.setuid(NOBODY)
        os.utime("shared")
        with fails(failed, errno.EPERM):
            os.utime("shared", (7, 7))
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0


def pieces() -> None:
    """Read and write with more pieces than the recorder adds up."""
    fd = os.open("pieces", os.O_CREAT | os.O_RDWR)
    assert os.writev(fd, [b"p" * 100] * 200) == 20_000
    assert os.preadv(fd, [bytearray(100)] * 200, 0) == 20_000
    assert os.fstat(fd).st_size == 20_000


def direct() -> None:
    """Read and write without the page cache, with aligned memory."""
    fd, room = os.open("direct", os.O_CREAT | os.O_RDWR | os.O_DIRECT), mmap.mmap(-1, 8192)
    assert os.write(fd, room) == 8192
    assert os.pwritev(fd, [room], 8192) == 8192
    assert os.preadv(fd, [room], 4096) == 8192


def take_turns() -> None:
    """Read and write one file by whichever thread comes next, as Go programs do."""
    orders = [queue.Queue[Callable[[], int] | None]() for _ in range(2)]
    answers = queue.Queue[int]()

    def work(own: "queue.Queue[Callable[[], int] | None]") -> None:
        while order := own.get():
            answers.put(order())

    threads = [threading.Thread(target=work, args=(own,)) for own in orders]
    for thread in threads:
        thread.start()
    turns = 0

    def turn(order: Callable[[], int]) -> int:
        nonlocal turns
        orders[turns % 2].put(order)
        turns += 1
        return answers.get()

    fd = os.open("turns", os.O_CREAT | os.O_RDWR)
    for at in range(100):
        assert turn(lambda at=at: os.write(fd, b"t" * (50 + at))) == 50 + at
    for at in range(100):
        turn(lambda at=at: os.lseek(fd, at * 90, os.SEEK_SET))
        turn(lambda at=at: os.write(fd, b"z" * (1 + at)))
    os.lseek(fd, 0, os.SEEK_SET)
    got = [turn(lambda: len(os.read(fd, 1000))) for _ in range(14)]
    assert got == [1000] * 9 + [950] + [0] * 4
    for own in orders:
        own.put(None)


def sockets(spool: str) -> None:
    """Make sockets as the master of Postfix does at its start, in its spool."""
    private = Path("private")
    private.mkdir()
    for path in (private / "smtp", Path(spool, private, "cleanup")):
        with socket.socket(socket.AF_UNIX) as server, socket.socket(socket.AF_UNIX) as second:
            server.bind(str(path))
            path.chmod(0o660)
            server.listen()
            with fails(failed, errno.EADDRINUSE):
                second.bind(str(path))
            with fails(failed, errno.ENOENT):
                second.bind("nowhere/smtp")
        assert path.stat().st_mode == stat.S_IFSOCK | 0o660
    Path("private/smtp").rename("private/smtps")
    Path("private/cleanup").unlink()
    with socket.socket(socket.AF_UNIX) as abstract, socket.socket() as port:
        abstract.bind("\0spoolscope")
        port.bind(("127.0.0.1", 0))


def limit() -> None:
    """Fail by the limit of file sizes, which Postfix sets for mailboxes."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (LIMIT, LIMIT))
    fd = os.open("mbox", os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    assert os.write(fd, b"b" * (LIMIT - 10)) == LIMIT - 10
    assert os.write(fd, b"b" * 4096) == 10
    with fails(failed, errno.EFBIG):
        os.write(fd, b"b" * 4096)
    with fails(failed, errno.EFBIG):
        os.ftruncate(fd, LIMIT + 1)


if __name__ == "__main__":
    main()
