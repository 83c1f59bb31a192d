"""State of each process that names depend on: descriptors, working and root directory, comm."""

from collections.abc import Callable
from copy import copy
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple, cast

import numpy as np

from spoolscope.tracers.aliases import Aliases
from spoolscope.tracers.below import Below
from spoolscope.tracers.lives import COMM, EXEC, EXIT, FORK, SEEN
from spoolscope.tracers.namespace import Namespace
from spoolscope.tracers.nodes import Key, Node
from spoolscope.traces import constants
from spoolscope.traces.abi import DUPLICATES, O_CLOEXEC, S_IFDIR, S_IFMT
from spoolscope.traces.calls import CALLS, of_effect, of_kind
from spoolscope.traces.capture import Capture, Records

SHARE_FILES, SHARE_FS = constants.TASK_SHARE_FILES, constants.TASK_SHARE_FS
_MOVES = [CALLS[name].id for name in of_effect("enters", "roots")]
_RETURNS_FD = [call.id for call in CALLS.values() if call.returns_fd]
_CLOSE, _CLOSE_RANGE, _FCNTL = (CALLS[name].id for name in of_kind("close", "close_range", "fcntl"))


class OpenFile(NamedTuple):
    """The open file of a descriptor.

    Attributes:
        node: Its name.
        key: The object, None if unknown.
        cloexec: It is closed on exec.
        flags: Flags of the open call.
        mode: st_mode, 0 if unknown.
        description: Descriptors with equal numbers share one open file description.
        position: Position when it was seen or opened, bytes.
        size: Size of the object when it was seen, bytes; -1 if unknown.
    """

    node: Node
    key: Key | None
    cloexec: bool
    flags: int = 0
    mode: int = 0
    description: int = 0
    position: int = 0
    size: int = -1


@dataclass
class Cwd:
    """Working and root directory; a separate object because CLONE_FS shares it.

    Attributes:
        node: The working directory.
        root: The root directory.
        way: The name by which the working directory was reached, if a mount was on the way.
    """

    node: Node | None = None
    root: Node | None = None
    way: bytes | None = None


@dataclass
class Process:
    """State of a process; ``threads`` are its threads that are known to exist.

    ``mount_ns`` is a namespace number of ``Below``.
    """

    fds: dict[int, OpenFile] = field(default_factory=dict)
    cwd: Cwd = field(default_factory=Cwd)
    threads: set[int] = field(default_factory=set)
    maps: dict[Key, Node] = field(default_factory=dict)
    early: bool = False
    mount_ns: int = 0


# As OpenFile._make, which takes three times as long.
as_open_file = cast("Callable[[tuple[Any, ...]], OpenFile]", partial(tuple.__new__, OpenFile))


def _open_file(node: Node, key: Key, file: np.void) -> OpenFile:
    flags = int(file["flags"])
    numbers = (int(file[name]) for name in ("mode", "description", "pos", "size"))
    return OpenFile(node, key, bool(flags & O_CLOEXEC), flags, *numbers)


def not_forked(rows: Records, tasks: Records) -> Records:
    """Return the snapshot's rows of processes older than it; others inherit their state."""
    forks = tasks[(tasks["event"] == FORK) & (tasks["pid"] == tasks["tid"])]
    order = np.lexsort((forks["ts_ns"], forks["pid"]))
    pids, times = forks["pid"][order], forks["ts_ns"][order]
    first = np.searchsorted(pids, rows["pid"])
    begun = np.full(len(rows), np.iinfo(np.uint64).max, np.uint64)
    found = first < len(pids)
    found[found] = pids[first[found]] == rows["pid"][found]
    begun[found] = times[first[found]]
    return rows[begun > rows["ts_ns"]]


class Processes:
    """All processes, followed through task events and the snapshot.

    Attributes:
        comms: Name of each thread by tid.
        cwd_seen: Working directory by tid, as the kernel had it at the first recorded call.
        below: Mounts below the spools.
        heirs: Processes, by pid and time of the fork, that inherited files of the spool: they
            keep these open and locked even if they make no call.
    """

    def __init__(self, capture: Capture, names: Namespace, aliases: Aliases) -> None:
        self._strings = capture.strings
        self._names = names
        self._real = aliases.real
        self._by_pid: dict[int, Process] = {}
        self.comms: dict[int, bytes] = {}
        self.cwd_seen: dict[int, Key] = {}
        self._awaited: dict[tuple[int, int], Node] = {}
        self._devices = {int(spool["dev"]) for spool in capture.meta.get("spools", [])}
        self.heirs: set[tuple[int, int]] = set()
        self.below = Below(capture.meta)
        for known in capture.meta.get("above", []):
            names.bind(names.node(known["path"].encode()), (int(known["dev"]), int(known["ino"])))
        self._begin(capture)

    def of(self, pid: int) -> Process:
        """Return the state of a process; it is empty at first."""
        process = self._by_pid.get(pid)
        if process is None:
            process = self._by_pid[pid] = Process()
        return process

    def copy(self) -> "Processes":
        """Return a copy of the present state, with the same sharing between processes."""
        fds: dict[int, dict[int, OpenFile]] = {}
        cwds: dict[int, Cwd] = {}
        other = copy(self)
        other.comms, other.cwd_seen = dict(self.comms), dict(self.cwd_seen)
        other.below = self.below.copy()
        other._by_pid = {
            pid: Process(
                fds.setdefault(id(process.fds), dict(process.fds)),
                cwds.setdefault(id(process.cwd), replace(process.cwd)),
                set(process.threads),
                dict(process.maps),
                process.early,
                process.mount_ns,
            )
            for pid, process in self._by_pid.items()
        }
        return other

    def living(self) -> dict[int, Process]:
        """Return all processes by pid."""
        return self._by_pid

    # -- the snapshot ------------------------------------------------------------

    def _begin(self, capture: Capture) -> None:
        """Take the state from the snapshot that no call changed between attaching and snapshot."""
        tasks, files = capture.records["task"], capture.records["open_file"]
        rows = tasks[(tasks["event"] == SEEN) & (tasks["path"] > 0)]
        rows, files = not_forked(rows, tasks), not_forked(files, tasks)
        until = max([0, *rows["ts_ns"].tolist(), *files["ts_ns"].tolist()])
        moved, touched = _touched(capture.records["syscall"], until)
        for row in rows:
            self.comms.setdefault(int(row["pid"]), bytes(row["comm"]))
            self.of(int(row["pid"])).early = True
            if moved.get(int(row["pid"]), until) >= int(row["ts_ns"]):
                self._met(row)
        for file in files:
            pid, fd, ts = int(file["pid"]), int(file["fd"]), int(file["ts_ns"])
            if min(touched.get((pid, fd), until), touched.get((pid, -1), until)) >= ts:
                self._expected(file)

    def _met(self, row: np.void) -> None:
        """Take a working directory from the snapshot, unless calls have set it."""
        cwd = self.of(int(row["pid"])).cwd
        if cwd.node is None and row["path"]:
            cwd.node = self._names.node(self._real(self._strings[row["path"]]))
            if row["cwd_ino"] and cwd.node.key is None:
                self._names.bind(cwd.node, (int(row["cwd_dev"]), int(row["cwd_ino"])))
            if cwd.root is None and row["root"]:
                cwd.root = self._names.node(self._real(self._strings[row["root"]]))

    def _expected(self, file: np.void) -> None:
        """Add a descriptor that the snapshot will show later; its name is known only then.

        The name of a directory is used at once: lookups in it are more frequent than renames of it.
        """
        if int(file["mode"]) & S_IFMT == S_IFDIR:
            self.file(file)
            return
        pid, fd, key = int(file["pid"]), int(file["fd"]), (int(file["dev"]), int(file["ino"]))
        node = self._awaited[pid, fd] = self._names.unnamed(key)
        self.of(pid).fds[fd] = _open_file(node, key, file)

    def file(self, file: np.void) -> None:
        """Add a descriptor from the snapshot."""
        pid, fd, key = int(file["pid"]), int(file["fd"]), (int(file["dev"]), int(file["ino"]))
        fds, awaited = self.of(pid).fds, self._awaited.pop((pid, fd), None)
        if fd in fds and awaited is None:
            return
        path = self._real(self._strings[file["path"]])
        if path.endswith(b" (deleted)"):
            node = self._names.nameless(path.removesuffix(b" (deleted)"), key)
        else:
            node = self._names.held(path, key)
        if awaited is not None:
            awaited.same = node
        else:
            fds[fd] = _open_file(node, key, file)

    # -- life --------------------------------------------------------------------

    def task(self, task: np.void) -> None:
        """Apply one task event."""
        event, pid, tid = int(task["event"]), int(task["pid"]), int(task["tid"])
        if event == FORK and pid == tid:
            parent = self.of(int(task["parent_pid"]))
            flags = int(task["flags"])
            if any(file.key and file.key[0] in self._devices for file in parent.fds.values()):
                self.heirs.add((pid, int(task["ts_ns"])))
            self._by_pid[pid] = Process(
                parent.fds if flags & SHARE_FILES else dict(parent.fds),
                parent.cwd if flags & SHARE_FS else replace(parent.cwd),
                {pid},
                dict(parent.maps),
                mount_ns=parent.mount_ns,
            )
        elif event == FORK:
            self.of(pid).threads.add(tid)
        elif event == EXEC:
            process = self.of(pid)
            process.fds = {fd: file for fd, file in process.fds.items() if not file.cloexec}
            process.threads, process.maps = {pid}, {}
        elif event == EXIT:
            self._exited(pid, tid)
        elif event == SEEN and task["path"]:
            self._met(task)
        elif event == SEEN:
            self.of(pid).threads.add(tid)
            if task["cwd_ino"]:
                self.cwd_seen[tid] = (int(task["cwd_dev"]), int(task["cwd_ino"]))
        if event in (SEEN, FORK, EXEC) and task["mount_ns"]:
            self.enter(self.of(pid), int(task["mount_ns"]))
        if event in (SEEN, FORK, EXEC, COMM) and task["comm"]:
            self.comms[tid] = bytes(task["comm"])

    def enter(self, process: Process, mount_ns: int) -> None:
        """Set the mount namespace of a process, by the inode of ns/mnt."""
        number = self.below.number(mount_ns)
        if number == process.mount_ns:
            return
        anew = all(other.mount_ns != number for other in self._by_pid.values())
        self.below.begin(number, process.mount_ns, anew=anew)
        process.mount_ns = number

    def _exited(self, pid: int, tid: int) -> None:
        """Remove a thread, and with the last one its process if all threads are known."""
        self.comms.pop(tid, None)
        process = self.of(pid)
        process.threads.discard(tid)
        if not process.threads and not process.early:
            self._by_pid.pop(pid, None)

    def check_cwd(self, process: Process, key: Key) -> None:
        """Check the known working directory of a thread against the one the kernel recorded."""
        cwd, known, found = process.cwd, process.cwd.node, self._names.lookup(key)
        if known is None:
            cwd.node = found
        elif known.key == key:
            pass
        elif known.key is not None or known.symlink:
            cwd.node = found
        elif found is not None:
            cwd.node = None  # the two contradict each other, and either may be right
        else:
            self._names.bind(known, key)
            known.assumed = True  # it may have moved before its calls were recorded


def _touched(calls: Records, until: int) -> tuple[dict[int, int], dict[tuple[int, int], int]]:
    """Return the first change of each working directory and descriptor (-1: several) up to a time.

    Only changes before the snapshot was complete matter: a fraction of a second.
    """
    moved: dict[int, int] = {}
    touched: dict[tuple[int, int], int] = {}
    of_interest = [*_MOVES, *_RETURNS_FD, _CLOSE, _CLOSE_RANGE, _FCNTL]
    calls = calls[(calls["end_ns"] <= until) & np.isin(calls["call"], of_interest)]
    for call in calls[np.argsort(calls["end_ns"])]:
        number, pid, end = int(call["call"]), int(call["pid"]), int(call["end_ns"])
        ret, args = int(call["ret"]), call["args"]
        if number == _CLOSE:
            touched.setdefault((pid, int(args[0])), end)
        elif ret < 0:
            continue
        elif number in _MOVES:
            moved.setdefault(pid, end)
        elif number == _CLOSE_RANGE:
            touched.setdefault((pid, -1), end)
        elif number != _FCNTL or args[1] in DUPLICATES:
            touched.setdefault((pid, ret), end)
    return moved, touched
