"""What each process knows of names: descriptors, working and root directory, comm."""

from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from spoolscope.tracers.lives import COMM, EXEC, EXIT, FORK, SEEN
from spoolscope.tracers.namespace import Aliases, Key, Namespace, Node
from spoolscope.traces.calls import CALLS
from spoolscope.traces.capture import Capture, Records

O_CLOEXEC = 0o2000000
F_DUPFD, F_DUPFD_CLOEXEC = 0, 1030
SHARE_FILES, SHARE_FS = 1, 2
_MOVES = [CALLS[name].id for name in ("chdir", "fchdir", "chroot")]
_RETURNS_FD = [call.id for call in CALLS.values() if call.returns_fd]
_CLOSE, _CLOSE_RANGE, _FCNTL = (CALLS[name].id for name in ("close", "close_range", "fcntl"))


class OpenFile(NamedTuple):
    """What a descriptor refers to."""

    node: Node
    key: Key | None
    cloexec: bool


@dataclass
class Cwd:
    """Working and root directory; an object of its own because CLONE_FS shares it."""

    node: Node | None = None
    root: Node | None = None


@dataclass
class Process:
    """State of a process; ``threads`` are those of its threads that are known to live."""

    fds: dict[int, OpenFile] = field(default_factory=dict)
    cwd: Cwd = field(default_factory=Cwd)
    threads: set[int] = field(default_factory=set)
    maps: dict[Key, Node] = field(default_factory=dict)
    early: bool = False


def forked_processes(tasks: Records) -> npt.NDArray[np.uint32]:
    """Return the processes (not threads) that began while recording: they inherit their state."""
    forks = tasks[(tasks["event"] == FORK) & (tasks["pid"] == tasks["tid"])]
    pids: npt.NDArray[np.uint32] = forks["pid"]
    return pids


class Processes:
    """All processes, followed through task events and the snapshot."""

    def __init__(self, capture: Capture, names: Namespace, aliases: Aliases) -> None:
        self._strings = capture.strings
        self._names = names
        self._real = aliases.real
        self._by_pid: dict[int, Process] = {}
        self.comms: dict[int, bytes] = {}
        self.cwd_seen: dict[int, Key] = {}
        self._begin(capture)

    def of(self, pid: int) -> Process:
        """Return the state of a process, empty when first met."""
        return self._by_pid.setdefault(pid, Process())

    # -- the snapshot ------------------------------------------------------------

    def _begin(self, capture: Capture) -> None:
        """Take from the snapshot what no call changed between attaching and the snapshot."""
        tasks, files = capture.records["task"], capture.records["open_file"]
        rows = tasks[(tasks["event"] == SEEN) & (tasks["path"] > 0)]
        rows = rows[~np.isin(rows["pid"], forked_processes(tasks))]
        files = files[~np.isin(files["pid"], forked_processes(tasks))]
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
                self.file(file)

    def _met(self, row: np.void) -> None:
        """A working directory from the snapshot; what calls told is not doubted."""
        cwd = self.of(int(row["pid"])).cwd
        if cwd.node is None and row["path"]:
            cwd.node = self._names.node(self._real(self._strings[row["path"]]))
            if cwd.root is None and row["root"]:
                cwd.root = self._names.node(self._real(self._strings[row["root"]]))

    def file(self, file: np.void) -> None:
        """A descriptor from the snapshot."""
        fds, path = self.of(int(file["pid"])).fds, self._real(self._strings[file["path"]])
        if int(file["fd"]) in fds:
            return
        key = (int(file["dev"]), int(file["ino"]))
        if path.endswith(b" (deleted)"):
            path = path.removesuffix(b" (deleted)")
            node = self._names.nameless(path, key)
        else:
            node = self._names.held(path, key)
        fds[int(file["fd"])] = OpenFile(node, key, bool(file["flags"] & O_CLOEXEC))

    # -- life --------------------------------------------------------------------

    def task(self, task: np.void) -> None:
        """Apply one task event."""
        event, pid, tid = int(task["event"]), int(task["pid"]), int(task["tid"])
        if event == FORK and pid == tid:
            parent = self.of(int(task["parent_pid"]))
            flags = int(task["flags"])
            self._by_pid[pid] = Process(
                parent.fds if flags & SHARE_FILES else dict(parent.fds),
                parent.cwd if flags & SHARE_FS else replace(parent.cwd),
                {pid},
                dict(parent.maps),
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
        if event in (SEEN, FORK, EXEC, COMM) and task["comm"]:
            self.comms[tid] = bytes(task["comm"])

    def _exited(self, pid: int, tid: int) -> None:
        """A process ends with its last thread; of those there at start not all are known."""
        self.comms.pop(tid, None)
        process = self.of(pid)
        process.threads.discard(tid)
        if not process.threads and not process.early:
            self._by_pid.pop(pid, None)

    def check_cwd(self, process: Process, key: Key) -> None:
        """Hold the kernel's own word on a thread's working directory against what is known."""
        cwd, known, found = process.cwd, process.cwd.node, self._names.lookup(key)
        if known is None:
            cwd.node = found
        elif known.key == key:
            pass
        elif known.key is not None or known.symlink:
            cwd.node = found
        elif found is not None:
            cwd.node = None  # two accounts, and no telling which is right
        else:
            self._names.bind(known, key)


def _touched(calls: Records, until: int) -> tuple[dict[int, int], dict[tuple[int, int], int]]:
    """When each process first changed directory, and each descriptor (-1: several), up to a time.

    Only what happened before the snapshot was whole matters, which is a fraction of a second.
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
        elif number != _FCNTL or args[1] in (F_DUPFD, F_DUPFD_CLOEXEC):
            touched.setdefault((pid, ret), end)
    return moved, touched
