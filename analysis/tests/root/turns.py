"""Processes that deliver and read mail in turns, so that any observer sees the same order.

Run as ``turns.py SPOOL``: a token goes round through pipes, and the process with it works.
"""

# The test is about the calls, so they are made directly.
# ruff: noqa: PTH102, PTH104, PTH108, PTH116, PTH208

import contextlib
import fcntl
import os
import sys

PROCESSES, TURNS = 4, 40


def main(spool: str) -> None:
    os.chdir(spool)
    for name in ("tmp", "new", "cur"):
        os.mkdir(name)
    pipes = [os.pipe() for _ in range(PROCESSES)]
    children = []
    for number in range(PROCESSES):
        child = os.fork()
        if child == 0:
            take_turns(number, pipes)
            os._exit(0)
        children.append(child)
    os.write(pipes[0][1], b".")
    for child in children:
        if os.waitpid(child, 0)[1]:
            sys.exit("a child failed")


def take_turns(number: int, pipes: list[tuple[int, int]]) -> None:
    log = os.open(f"log{number % 2}", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o640)
    for turn in range(TURNS):
        os.read(pipes[number][0], 1)
        deliver(f"{number}.{turn}", log) if number % 2 else read(turn)
        os.write(pipes[(number + 1) % PROCESSES][1], b".")


def deliver(name: str, log: int) -> None:
    fd = os.open(f"tmp/{name}", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    os.write(fd, b"x" * (1000 + len(name)))
    os.fsync(fd)
    os.close(fd)
    os.rename(f"tmp/{name}", f"new/{name}")
    os.write(log, b"delivered\n")
    index = os.open("index", os.O_RDWR | os.O_CREAT, 0o600)
    fcntl.lockf(index, fcntl.LOCK_EX)
    os.lseek(index, 0, os.SEEK_END)
    os.write(index, name.encode())
    fcntl.lockf(index, fcntl.LOCK_UN)
    os.close(index)


def read(turn: int) -> None:
    for name in sorted(os.listdir("new")):
        os.rename(f"new/{name}", f"cur/{name}:2,S")
        os.pread(fd := os.open(f"cur/{name}:2,S", os.O_RDONLY), 4096, 0)
        os.close(fd)
    lock = os.open("list.lock", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    os.writev(lock, [b"list", b"%d" % turn])
    os.close(lock)
    os.rename("list.lock", "list")
    if turn % 7 == 0:
        for name in os.listdir("cur"):
            os.unlink(f"cur/{name}")
    with contextlib.suppress(FileNotFoundError):
        os.stat("nothing")


if __name__ == "__main__":
    main(sys.argv[1])
