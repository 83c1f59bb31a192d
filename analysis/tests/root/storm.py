"""Processes that change a spool all the time, from before the recording until the end of input.

Run as ``storm.py SPOOL SEED``; prints "started" when it is under way, ends at the end of its input.
"""

# The test is about the calls, so they are made directly.
# ruff: noqa: PTH103, PTH104, PTH108, PTH106, PTH123, PTH208

import contextlib
import fcntl
import os
import random
import signal
import sys
import time

WORKERS = 4
BOXES = 6
GONE = (FileNotFoundError, FileExistsError, OSError)


def prepare(spool: str) -> None:
    """Make the files that exist before the storm."""
    for box in range(BOXES):
        for name in ("tmp", "new", "cur/deep/deeper"):
            os.makedirs(f"{spool}/box{box}/{name}")
        for mail in range(150):
            with open(f"{spool}/box{box}/cur/{mail}.old", "wb") as file:
                file.write(b"m" * (mail * 7))
        os.link(f"{spool}/box{box}/cur/1.old", f"{spool}/box{box}/cur/deep/deeper/1.link")
    with open(f"{spool}/log", "wb") as log:
        log.write(b"begin\n")


def main(spool: str, seed: int) -> None:
    os.chdir(spool)
    shared = os.open("log", os.O_RDWR | os.O_APPEND)
    fcntl.flock(os.open("lock", os.O_CREAT | os.O_RDWR), fcntl.LOCK_EX)
    children = []
    for number in range(WORKERS):
        child = os.fork()
        if child == 0:
            Worker(number, seed * 100 + number, shared).run()
            os._exit(0)
        children.append(child)
    print("started", flush=True)
    sys.stdin.read()
    for child in children:
        os.kill(child, signal.SIGTERM)
    for child in children:
        _, status = os.waitpid(child, 0)
        if status:
            sys.exit(f"a worker failed: {status}")


class Worker:
    """One process, which works on its own names in shared directories."""

    def __init__(self, number: int, seed: int, shared: int) -> None:
        self.random = random.Random(seed)
        self.number, self.shared, self.n = number, shared, 0
        self.stop = False
        signal.signal(signal.SIGTERM, self._stop)
        os.chdir(f"box{number}")
        self.lock = os.open("own.lock", os.O_CREAT | os.O_RDWR)
        fcntl.lockf(self.lock, fcntl.LOCK_EX, 100, number)
        self.held = os.open("cur/3.old", os.O_RDONLY)
        self.directory = os.open("new", os.O_RDONLY | os.O_DIRECTORY)

    def _stop(self, *_: object) -> None:
        self.stop = True

    def run(self) -> None:
        works = [self.deliver, self.read, self.move, self.index, self.fork, self.folder]
        while not self.stop:
            self.n += 1
            with contextlib.suppress(*GONE):
                self.random.choice(works)()
            time.sleep(self.random.random() / 1000)

    def deliver(self) -> None:
        name = f"{self.number}.{self.n}"
        fd = os.open(f"tmp/{name}", os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o640)
        os.write(fd, b"d" * self.random.randrange(1, 3000))
        time.sleep(self.random.random() / 200)  # stay open for a while: a recording may begin now
        if self.random.random() < 0.5:
            os.rename(f"tmp/{name}", name, dst_dir_fd=self.directory)
            os.write(fd, b"late" * 9)
        else:
            os.link(f"tmp/{name}", f"new/{name}")
            os.unlink(f"tmp/{name}")
        os.close(fd)

    def read(self) -> None:
        os.read(self.held, 10)
        for name in os.listdir("new")[:3]:
            os.rename(name, f"cur/{name}:2,S", src_dir_fd=self.directory)
            with open(f"cur/{name}:2,S", "rb") as file:
                file.read(50)

    def move(self) -> None:
        """Move a directory tree to another box and back, with a rename inside meanwhile."""
        box = self.random.randrange(WORKERS, BOXES)
        os.rename("cur/deep", f"../box{box}/cur/deep{self.number}")
        os.rename(f"../box{box}/cur/deep{self.number}/deeper", "../box4/new/d" + str(self.number))
        self.deliver()
        os.rename(f"../box4/new/d{self.number}", f"../box{box}/cur/deep{self.number}/deeper")
        os.rename(f"../box{box}/cur/deep{self.number}", "cur/deep")

    def index(self) -> None:
        os.write(self.shared, b"%d %d\n" % (self.number, self.n))
        fd = os.open("index", os.O_CREAT | os.O_RDWR | os.O_APPEND, 0o600)
        os.write(fd, b"i" * 30)
        if self.n % 9 == 0:
            os.ftruncate(fd, 0)
        os.close(fd)
        if self.n % 5 == 0:
            with open("index.new", "wb") as file:
                file.write(b"new index")
            os.rename("index.new", "index")

    def fork(self) -> None:
        child = os.fork()
        if child == 0:
            with contextlib.suppress(*GONE):
                os.chdir("cur")
                os.unlink(f"{self.random.randrange(150)}.old")
                with open(f"{self.number}.{self.n}.child", "wb") as file:
                    file.write(b"c" * 100)
            os._exit(0)
        os.waitpid(child, 0)

    def folder(self) -> None:
        name = f".folder{self.n}"
        os.makedirs(f"{name}/cur")
        os.rename(name, f"{name}.renamed")
        if self.n % 2:
            os.rmdir(f"{name}.renamed/cur")
            os.rmdir(f"{name}.renamed")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
