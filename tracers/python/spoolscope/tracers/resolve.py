"""Which file was each call about? Follows descriptors and working directories.

The kernel side records what the caller passed; here fd tables and cwds are followed
through open, dup, close, chdir, fork and exec in the order in which the calls returned.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from spoolscope.traces.calls import BY_ID, CALLS
from spoolscope.traces.capture import Capture, Records

AT_FDCWD = -100
O_CLOEXEC = 0o2000000
F_DUPFD, F_SETFD, F_DUPFD_CLOEXEC = 0, 2, 1030
SEEN, FORK, EXEC, EXIT, END, COMM = 1, 2, 3, 4, 5, 6
SHARE_FILES, SHARE_FS = 1, 2
BASE_NONE, BASE_ROOT, BASE_CWD, BASE_FD = range(4)
PATH_FAULT = 1 << 1
S_IFMT, S_IFDIR = 0o170000, 0o040000


class OpenFile(NamedTuple):
    """What a descriptor refers to."""

    path: bytes
    cloexec: bool


@dataclass
class Cwd:
    """Working and root directory; an object of its own because CLONE_FS shares it."""

    path: bytes | None = None
    root: bytes = b""


@dataclass
class Process:
    """What a process knows of names."""

    fds: dict[int, OpenFile] = field(default_factory=dict)
    cwd: Cwd = field(default_factory=Cwd)


@dataclass
class Resolved:
    """Paths of all calls, in the capture's order of calls.

    Attributes:
        paths: Absolute names by id.
        path, path2: Path id per call, -1 none.
        base, base2: How each was given (enum spsc_path_base).
        comm: Name of the calling thread at that time.
        unresolved: Calls on a spool whose object's name could not be found.
    """

    paths: list[bytes]
    path: npt.NDArray[np.int64]
    path2: npt.NDArray[np.int64]
    base: npt.NDArray[np.int16]
    base2: npt.NDArray[np.int16]
    comm: list[bytes]
    unresolved: int = 0


def forked_processes(tasks: Records) -> npt.NDArray[np.uint32]:
    """Return the processes (not threads) that began while recording: they inherit their state."""
    forks = tasks[(tasks["event"] == FORK) & (tasks["pid"] == tasks["tid"])]
    pids: npt.NDArray[np.uint32] = forks["pid"]
    return pids


class Names:
    """Interned absolute paths."""

    def __init__(self) -> None:
        self.paths: list[bytes] = []
        self._ids: dict[bytes, int] = {}
        self._joined: dict[tuple[bytes, bytes], bytes] = {}

    def id(self, path: bytes) -> int:
        """Return the id of an absolute path."""
        number = self._ids.get(path)
        if number is None:
            number = self._ids[path] = len(self.paths)
            self.paths.append(path)
        return number

    def join(self, base: bytes, name: bytes) -> bytes:
        """Return name as seen from base (the root for absolute names), normalised."""
        key = (base, name)
        joined = self._joined.get(key)
        if joined is None:
            joined = self._joined[key] = _normal(base + b"/" + name)
        return joined


def _normal(path: bytes) -> bytes:
    """Lexical, as symlinked directories with '..' behind them are not met in spools."""
    parts: list[bytes] = []
    for part in path.split(b"/"):
        if part == b"..":
            del parts[-1:]
        elif part not in (b"", b"."):
            parts.append(part)
    return b"/" + b"/".join(parts)


class Resolver:
    """Walks calls and task events in time order."""

    def __init__(self, capture: Capture) -> None:
        self.capture = capture
        self.names = Names()
        self.processes: dict[int, Process] = {}
        self.comms: dict[int, bytes] = {}
        self.by_inode: dict[tuple[int, int], bytes] = {}
        self.directories: set[bytes] = set()
        self.unresolved = 0
        self._start()

    def process(self, pid: int) -> Process:
        """Return the state of a process, empty when first met."""
        return self.processes.setdefault(pid, Process())

    # -- state at start ------------------------------------------------------

    def _start(self) -> None:
        strings = self.capture.strings
        tasks = self.capture.records["task"]
        forked = set(forked_processes(tasks).tolist())
        for name in self.capture.records["tree"]:
            path = strings[name["path"]]
            self.by_inode[(int(name["dev"]), int(name["ino"]))] = path
            if int(name["mode"]) & S_IFMT == S_IFDIR:
                self.directories.add(path)
        for task in tasks[(tasks["event"] == SEEN) & (tasks["path"] > 0)]:
            if int(task["pid"]) not in forked:
                start = Cwd(strings[task["path"]], strings[task["root"]])
                self.process(int(task["pid"])).cwd = start
                self.comms[int(task["pid"])] = bytes(task["comm"])
        for file in self.capture.records["open_file"]:
            path = strings[file["path"]]
            if path.endswith(b" (deleted)"):
                path = path.removesuffix(b" (deleted)")
            self.by_inode.setdefault((int(file["dev"]), int(file["ino"])), path)
            if int(file["pid"]) not in forked:
                opened = OpenFile(path, bool(file["flags"] & O_CLOEXEC))
                self.process(int(file["pid"])).fds[int(file["fd"])] = opened

    # -- life ------------------------------------------------------------------

    def task(self, task: np.void) -> None:
        """Apply one task event."""
        event, pid, tid = int(task["event"]), int(task["pid"]), int(task["tid"])
        if event == FORK and pid == tid:
            parent = self.process(int(task["parent_pid"]))
            flags = int(task["flags"])
            self.processes[pid] = Process(
                parent.fds if flags & SHARE_FILES else dict(parent.fds),
                parent.cwd if flags & SHARE_FS else replace(parent.cwd),
            )
        elif event == EXEC:
            process = self.process(pid)
            process.fds = {fd: file for fd, file in process.fds.items() if not file.cloexec}
        elif event == EXIT and pid == tid:
            self.processes.pop(pid, None)
        if event in (SEEN, FORK, EXEC, COMM) and task["comm"]:
            self.comms[tid] = bytes(task["comm"])

    # -- calls -----------------------------------------------------------------

    def name_of(self, process: Process, dirfd: int | None, raw: bytes) -> tuple[int, int]:
        """Return path id (-1 unknown) and how the path was given."""
        if raw.startswith(b"/"):
            return self.names.id(self.names.join(process.cwd.root, raw)), BASE_ROOT
        if dirfd is None or dirfd == AT_FDCWD:
            base, kind = process.cwd.path, BASE_CWD
        else:
            file = process.fds.get(dirfd)
            base, kind = (file.path if file else None), BASE_FD
        if base is None:
            return -1, kind
        return self.names.id(self.names.join(base, raw)), kind

    def text(self, raw: bytes) -> int:
        """Intern a name that is not resolved (symlink target, xattr name)."""
        return self.names.id(b"\0" + raw)

    def rename_directory(self, old: bytes, new: bytes) -> None:
        """Descriptors and cwds below a renamed directory move with it."""
        if old not in self.directories:
            return
        self.directories.add(new)
        prefix = old + b"/"

        def moved(path: bytes) -> bytes:
            return new + path[len(old) :] if path == old or path.startswith(prefix) else path

        for process in self.processes.values():
            if process.cwd.path is not None:
                process.cwd.path = moved(process.cwd.path)
            process.cwd.root = moved(process.cwd.root)
            for fd, file in process.fds.items():
                process.fds[fd] = file._replace(path=moved(file.path))


@dataclass(frozen=True)
class Shape:
    """Argument positions of a call, -1 if it has none."""

    name: str
    fd: int
    fd2: int
    dirfd: int
    dirfd2: int
    path: int
    path2: int
    has_text: bool
    flags: int
    returns_fd: bool
    is_exec: bool


def _shape(number: int) -> Shape:
    call = BY_ID[number]

    def at(word: str) -> int:
        position = call.position(word)
        return -1 if position is None else position

    return Shape(
        name=call.name,
        fd=at("fd"),
        fd2=at("fd2"),
        dirfd=at("dirfd"),
        dirfd2=at("dirfd2"),
        path=at("path"),
        path2=at("path2"),
        has_text=at("target") >= 0 or at("name") >= 0,
        flags=at("flags"),
        returns_fd=call.returns_fd,
        is_exec=call.name in ("execve", "execveat"),
    )


SHAPES = [_shape(i) for i in range(len(CALLS))]


def signed(value: int) -> int:
    """Return a 64-bit register as the C int it carries."""
    value &= 0xFFFF_FFFF
    return value - (1 << 32) if value & 0x8000_0000 else value


def resolve(capture: Capture) -> Resolved:
    """Name the objects of every call of a capture."""
    calls, tasks = capture.records["syscall"], capture.records["task"]
    resolver = Resolver(capture)
    n = len(calls)
    out = Resolved(
        resolver.names.paths,
        np.full(n, -1, np.int64),
        np.full(n, -1, np.int64),
        np.zeros(n, np.int16),
        np.zeros(n, np.int16),
        [b""] * n,
    )
    order = np.argsort(calls["end_ns"], kind="stable")
    tasks = tasks[np.argsort(tasks["ts_ns"], kind="stable")]
    task_times = [*tasks["ts_ns"].tolist(), 1 << 63]
    next_task = 0
    for row in _rows(calls, order):
        while task_times[next_task] <= row.end_ns:
            resolver.task(tasks[next_task])
            next_task += 1
        out.comm[row.position] = resolver.comms.get(row.tid, b"")
        _resolve_call(resolver, out, row)
    for task in tasks[next_task:]:
        resolver.task(task)
    out.unresolved = resolver.unresolved
    return out


class Row(NamedTuple):
    """The members of a call used here, as Python values: much faster than record access."""

    position: int
    end_ns: int
    call: int
    pid: int
    tid: int
    ret: int
    args: list[int]
    path: int
    path2: int
    dev: int
    ino: int
    obj_mode: int
    flags: int


def _rows(calls: Records, order: npt.NDArray[np.intp]) -> Iterator[Row]:
    sorted_calls = calls[order]
    columns = [sorted_calls[member].tolist() for member in Row._fields[1:]]
    return map(Row._make, zip(order.tolist(), *columns, strict=True))


def _resolve_call(resolver: Resolver, out: Resolved, row: Row) -> None:
    """Resolve one call's names, then apply what it did to descriptors and cwd."""
    process, shape = resolver.process(row.pid), SHAPES[row.call]
    strings, args, i = resolver.capture.strings, row.args, row.position
    first = second = -1
    if shape.path >= 0 and row.path:
        dirfd = signed(args[shape.dirfd]) if shape.dirfd >= 0 else None
        first, out.base[i] = resolver.name_of(process, dirfd, strings[row.path])
    else:
        at = shape.fd if shape.fd >= 0 else shape.dirfd
        file = process.fds.get(signed(args[at])) if at >= 0 else None
        by_inode = resolver.by_inode.get((row.dev, row.ino)) if row.ino else None
        known = file.path if file else by_inode
        first = resolver.names.id(known) if known is not None else -1
        if shape.path >= 0 and first >= 0:
            out.base[i] = BASE_FD
    if shape.path2 >= 0 and row.path2:
        dirfd = signed(args[shape.dirfd2]) if shape.dirfd2 >= 0 else None
        second, out.base2[i] = resolver.name_of(process, dirfd, strings[row.path2])
    elif shape.has_text and row.path2:
        second = resolver.text(strings[row.path2])
    out.path[i], out.path2[i] = first, second
    if first < 0 and (row.ino or row.path or row.flags & PATH_FAULT) and not shape.is_exec:
        resolver.unresolved += 1  # an empty path, as in open(""), names nothing
    if row.ret >= 0:
        _effects(resolver, process, shape, row, first, second)
    elif shape.name == "close":
        process.fds.pop(signed(args[0]), None)


def _effects(
    resolver: Resolver, process: Process, shape: Shape, row: Row, first: int, second: int
) -> None:
    name, fds, args = shape.name, process.fds, row.args
    paths = resolver.names.paths
    if name in ("open", "openat", "openat2", "creat"):
        if first >= 0:
            _opened(resolver, fds, shape, row, paths[first])
    elif name == "close":
        fds.pop(signed(args[0]), None)
    elif name == "close_range":
        for fd in [fd for fd in fds if args[0] <= fd <= args[1]]:
            del fds[fd]
    elif name in ("dup", "dup2", "dup3") or (
        name == "fcntl" and args[1] in (F_DUPFD, F_DUPFD_CLOEXEC)
    ):
        cloexec = (name == "dup3" and bool(args[2] & O_CLOEXEC)) or (
            name == "fcntl" and args[1] == F_DUPFD_CLOEXEC
        )
        _duplicate(fds, signed(args[0]), row.ret, cloexec=cloexec)
    elif name == "fcntl" and args[1] == F_SETFD and signed(args[0]) in fds:
        fds[signed(args[0])] = fds[signed(args[0])]._replace(cloexec=bool(args[2] & 1))
    elif name in ("mkdir", "mkdirat") and first >= 0:
        resolver.directories.add(paths[first])
    elif name in ("chdir", "fchdir"):
        process.cwd.path = paths[first] if first >= 0 else None
    elif name == "chroot" and first >= 0:
        process.cwd.root = paths[first]
    elif name in ("rename", "renameat", "renameat2") and first >= 0 and second >= 0:
        resolver.rename_directory(paths[first], paths[second])


def _opened(
    resolver: Resolver, fds: dict[int, OpenFile], shape: Shape, row: Row, path: bytes
) -> None:
    flags = row.args[2] if shape.name == "openat2" else 0
    if shape.flags >= 0:
        flags = row.args[shape.flags]
    fds[row.ret] = OpenFile(path, bool(flags & O_CLOEXEC))
    resolver.by_inode[(row.dev, row.ino)] = path
    if row.obj_mode & S_IFMT == S_IFDIR:
        resolver.directories.add(path)


def _duplicate(fds: dict[int, OpenFile], old: int, new: int, *, cloexec: bool) -> None:
    file = fds.get(old)
    if file is None:
        fds.pop(new, None)
    elif old != new:
        fds[new] = file._replace(cloexec=cloexec)
