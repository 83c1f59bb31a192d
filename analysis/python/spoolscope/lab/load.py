"""A mail-like load and the culprits that disturb it: one process each, for a given time.

Run as a program by path, with one argument of JSON: ``mount``, ``seconds``, ``log`` and ``roles``,
a list of objects with ``role``, ``n`` and arguments of the role. Standard library only, as further
imports would add work. Culprits write their actions to ``log``, by their own clock: role, pid,
begin and end in nanoseconds since the epoch.
"""

import fcntl
import json
import os
import random
import sys
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

MESSAGE = os.urandom(6000)
Role = Callable[["Worker"], None]


class Worker:
    """One process: its directory, its end, and its number within its role."""

    def __init__(self, plan: dict[str, Any], role: dict[str, Any], number: int) -> None:
        self.mount = Path(plan["mount"])
        self.role, self.number = role, number
        self._log: Path = Path(plan["log"])
        self._deeds: list[str] = []
        self._parent = os.getpid()
        self._end = time.monotonic() + plan["seconds"]

    def goes_on(self) -> bool:
        """Return True if there is time left and the parent lives."""
        return time.monotonic() < self._end and os.getppid() == self._parent

    def think(self, default_ms: float = 2.0) -> None:
        """Pause for the role's time, slightly at random so that workers do not synchronise."""
        time.sleep(self.role.get("think_ms", default_ms) / 1e3 * random.uniform(0.5, 1.5))

    def did(self, begin_ns: int) -> None:
        """Note an action that began at ``begin_ns`` and ends now."""
        self._deeds.append(f"{self.role['role']} {os.getpid()} {begin_ns} {time.time_ns()}\n")

    def report_errors(self) -> None:
        """Write the noted actions at the end, as writing during the load would add load."""
        with self._log.open("a") as file:
            file.write("".join(self._deeds))

    def box(self) -> Path:
        """Return this worker's mailbox."""
        return self.mount / f"box{self.number}"


def make_box(box: Path) -> None:
    """Make a Maildir."""
    for name in ("tmp", "new", "cur"):
        (box / name).mkdir(parents=True, exist_ok=True)


def deliver(worker: Worker) -> None:
    """Deliver to its own mailbox, durably, and append to the index log."""
    make_box(box := worker.box())
    log = os.open(box / "dovecot.index.log", os.O_RDWR | os.O_CREAT | os.O_APPEND)
    n = 0
    while worker.goes_on():
        name = f"{n}.{os.getpid()}.host"
        begin = time.time_ns()
        write_message(box / "tmp" / name, size=worker.role.get("size", len(MESSAGE)))
        worker.did(begin)
        (box / "tmp" / name).rename(box / "new" / name)
        if worker.role.get("index", True):
            fcntl.lockf(log, fcntl.LOCK_EX)
            os.write(log, MESSAGE[:120])
            os.fdatasync(log)
            fcntl.lockf(log, fcntl.LOCK_UN)
        n += 1
        worker.think()


def write_message(path: Path, *, durable: bool = True, size: int = len(MESSAGE)) -> None:
    """Create and write a message, with a sync if ``durable``."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    os.write(fd, MESSAGE[:size])
    if durable:
        os.fsync(fd)
    os.close(fd)


def rename(worker: Worker) -> None:
    """Create and rename files across its own folders without syncs."""
    folders = [worker.box() / str(n) for n in range(64)]
    for folder in folders:
        folder.mkdir(parents=True)
    n = 0
    while worker.goes_on():
        here, there = random.choices(folders, k=2)
        os.close(os.open(here / f"{n}", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
        (here / f"{n}").rename(there / f"{n}.host")
        n += 1


def rewrite(worker: Worker) -> None:
    """Overwrite a file in place repeatedly: nearly all time is in the kernel, without sleeps."""
    fd = os.open(worker.mount / f"file{worker.number}", os.O_RDWR | os.O_CREAT)
    data = bytes(1 << 20)
    while worker.goes_on():
        os.pwrite(fd, data, 0)


def make_folders(worker: Worker) -> None:
    """Make folders at the top, where filesystems spread them over the whole disk."""
    n = 0
    while worker.goes_on():
        (worker.mount / f"folder{worker.number}.{n}").mkdir()
        n += 1
        worker.think()


def fetch(worker: Worker) -> None:
    """Look up and read uncached messages, each once."""
    box = worker.mount / "old"
    for n in range(worker.number, worker.role["messages"], worker.role["n"]):
        if not worker.goes_on():
            return
        fd = os.open(box / f"d{n % 40}" / f"{n}.host", os.O_RDONLY)
        while os.read(fd, 1 << 14):
            pass
        os.close(fd)
        worker.think()


def scatter(worker: Worker) -> None:
    """Write pages across its own file, more than fit into its memory."""
    fd = os.open(worker.mount / f"spread{worker.number}", os.O_RDWR | os.O_CREAT)
    while worker.goes_on():
        os.pwrite(fd, MESSAGE[:4096], random.randrange(worker.role["pages"]) << 12)


def drop(worker: Worker) -> None:
    """Put messages into a shared directory without syncs."""
    box = worker.mount / "shared"
    n = 0
    while worker.goes_on():
        size = worker.role.get("size", len(MESSAGE))
        write_message(box / f"{n}.{os.getpid()}.host", durable=False, size=size)
        n += 1
        worker.think()


def hold_directory(worker: Worker) -> None:
    """Culprit: remove files whose inodes a slow disk must read, with their directory locked."""
    for n in range(0, worker.role["files"], worker.role["step"]):
        if not worker.goes_on():
            return
        begin = time.time_ns()
        (worker.mount / "shared" / f"{n}").unlink()
        worker.did(begin)
        worker.think()


def hold_lock(worker: Worker) -> None:
    """Culprit: hold the lock of a file that the others want."""
    fd = os.open(worker.mount / "lock", os.O_RDWR | os.O_CREAT)
    while worker.goes_on():
        fcntl.lockf(fd, fcntl.LOCK_EX)
        begin = time.time_ns()
        time.sleep(worker.role["hold_ms"] / 1e3)
        worker.did(begin)
        fcntl.lockf(fd, fcntl.LOCK_UN)
        worker.think()


def append_locked(worker: Worker) -> None:
    """Append to a shared file, under its lock."""
    fd = os.open(worker.mount / "lock", os.O_RDWR | os.O_CREAT | os.O_APPEND)
    while worker.goes_on():
        fcntl.lockf(fd, fcntl.LOCK_EX)
        os.write(fd, MESSAGE[:120])
        fcntl.lockf(fd, fcntl.LOCK_UN)
        worker.think()


def hog(worker: Worker) -> None:
    """Culprit: occupy one CPU for known bursts."""
    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(10))
    while worker.goes_on():
        begin, until = time.time_ns(), time.monotonic_ns() + int(worker.role["burst_ms"] * 1e6)
        while time.monotonic_ns() < until:
            pass
        worker.did(begin)
        worker.think()


def hold_handle(worker: Worker) -> None:
    """Culprit: keep a transaction open by truncating files whose extents a slow disk must read."""
    for path in sorted(worker.mount.glob("fragments*")):
        if not worker.goes_on():
            return
        begin = time.time_ns()
        os.truncate(path, 0)
        worker.did(begin)
        worker.think()


def sync_loop(worker: Worker) -> None:
    """Culprit: change one byte of a file of its own and sync it, again and again."""
    fd = os.open(worker.mount / "statistics.db", os.O_RDWR | os.O_CREAT)
    while worker.goes_on():
        begin = time.time_ns()
        os.pwrite(fd, MESSAGE[:8], 0)
        os.fsync(fd)
        worker.did(begin)


ROLES: dict[str, Role] = {
    role.__name__: role
    for role in (deliver, rename, rewrite, make_folders, fetch, scatter, drop, append_locked,
                 hold_directory, hold_lock, hog, hold_handle, sync_loop)
}  # fmt: skip


def start(plan: dict[str, Any], role: dict[str, Any], number: int) -> int:
    """Fork one worker; return its pid."""
    worker = Worker(plan, role, number)
    if pid := os.fork():
        return pid
    status = 1
    try:
        if "group" in role:
            Path(role["group"], "cgroup.procs").write_text(str(os.getpid()))
        if "cpu" in role:
            os.sched_setaffinity(0, {role["cpu"]})
        name = role.get("comm", role["role"][:15])
        with suppress(OSError):
            Path("/proc/self/comm").write_text(name)
        time.sleep(role.get("after_ms", 0) / 1e3)
        ROLES[role["role"]](worker)
        worker.report_errors()
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(status)


def main() -> int:
    """Start all workers and wait for all; fail if one failed."""
    plan = json.loads(sys.argv[1])
    pids = [start(plan, role, i) for role in plan["roles"] for i in range(role["n"])]
    statuses = [os.waitpid(pid, 0)[1] for pid in pids]
    return int(any(statuses))


if __name__ == "__main__":
    sys.exit(main())
