"""Processes that race as mail servers do: deliveries, scans, dotlocks, locked index files.

Run as ``race.py SPOOL SEED``; every process works until its count is done.
"""

# The calls themselves are the test, so they are made by their own names.
# ruff: noqa: PTH104, PTH108, PTH106, PTH116, PTH123, PTH208

import contextlib
import fcntl
import os
import random
import sys
import time
from pathlib import Path

DELIVERERS, READERS, MAILS = 4, 4, 60


def main(spool: str, seed: int) -> None:
    os.chdir(spool)
    for name in ("tmp", "new", "cur", "box"):
        Path(name).mkdir(exist_ok=True)
    for name in ("index", "list"):
        Path(name).write_bytes(b"start" * 10)
    children = []
    for number in range(DELIVERERS + READERS):
        child = os.fork()
        if child == 0:
            random.seed(seed * 100 + number)
            work = deliver if number < DELIVERERS else read
            work(number)
            os._exit(0)
        children.append(child)
    for child in children:
        _, status = os.waitpid(child, 0)
        if status:
            sys.exit(f"child failed: {status}")


def deliver(number: int) -> None:
    for mail in range(MAILS):
        name = f"{number}.{mail}"
        fd = os.open(f"tmp/{name}", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        os.write(fd, b"x" * random.randrange(1, 9000))
        if mail % 5 == 0:
            os.fsync(fd)
        os.close(fd)
        os.rename(f"tmp/{name}", f"new/{name}")
        append("index", 40)
        if mail % 4 == 0:
            rewrite(number)
        if mail % 7 == 0:
            folder(number)


def read(number: int) -> None:
    for _ in range(MAILS):
        for name in os.listdir("new"):
            # Every reader wants every mail: one of them wins.
            with contextlib.suppress(FileNotFoundError):
                os.rename(f"new/{name}", f"cur/{name}:2,")
        names = os.listdir("cur")
        for name in random.sample(names, k=min(5, len(names))):
            with contextlib.suppress(FileNotFoundError):
                flags = name.split(":2,")[1]
                if len(flags) < 2:
                    os.rename(f"cur/{name}", f"cur/{name}S")
                elif random.random() < 0.4:
                    os.unlink(f"cur/{name}")
                else:
                    Path("cur", name).read_bytes()
        tail("index")
        if number % 2:
            rewrite(number)
        time.sleep(0.001)


def append(path: str, size: int) -> None:
    """Append under a record lock, as servers do to index logs."""
    fd = os.open(path, os.O_RDWR | os.O_APPEND)
    fcntl.lockf(fd, fcntl.LOCK_EX)
    os.write(fd, b"i" * size)
    fcntl.lockf(fd, fcntl.LOCK_UN)
    os.close(fd)


def tail(path: str) -> None:
    with open(path, "rb", buffering=0) as file:
        file.seek(-20, os.SEEK_END)
        file.read(4096)


def rewrite(number: int) -> None:
    """Replace a file under a dotlock, as servers do with uidlists."""
    for _ in range(200):
        try:
            fd = os.open("list.lock", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        except FileExistsError:
            time.sleep(0.0005)
            continue
        size = os.stat("list").st_size
        os.write(fd, b"u" * (size % 3000 + number))
        os.fdatasync(fd)
        os.close(fd)
        os.rename("list.lock", "list")
        return


def folder(number: int) -> None:
    """Make a folder, fill it, move it away and remove it."""
    Path(f"box/f{number}/new").mkdir(parents=True)
    Path(f"box/f{number}/new/m").write_bytes(b"folder")
    os.link(f"box/f{number}/new/m", f"box/f{number}/copy")
    os.rename(f"box/f{number}", f"box/trash{number}")
    for name in ("new/m", "copy"):
        os.unlink(f"box/trash{number}/{name}")
    os.rmdir(f"box/trash{number}/new")
    os.rmdir(f"box/trash{number}")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
