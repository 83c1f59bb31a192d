"""Resolution of calls to files: follows descriptors and working directories.

The BPF programs record what the caller passed; here fd tables and cwds are followed
through open, dup, close, chdir, fork and exec in the order in which the calls returned.
If an inode that the kernel recorded contradicts the known state, the inode counts: the name
is then found by inode or not at all, never guessed.
"""

import errno
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from spoolscope.tracers.aliases import Aliases
from spoolscope.tracers.effects import SHAPES, Done, Row, Shape, apply, may_change, signed
from spoolscope.tracers.mounting import Mounting
from spoolscope.tracers.named import BASE_CWD, BASE_FD, BASE_ROOT, NOTHING, Named, Names
from spoolscope.tracers.namespace import Namespace
from spoolscope.tracers.nodes import Key, Node
from spoolscope.tracers.plain_calls import CLOSE, OTHER, PLAIN, descriptors_of, kinds_of
from spoolscope.tracers.processes import OpenFile, Process, Processes
from spoolscope.tracers.start import Finding, Start
from spoolscope.tracers.state import State
from spoolscope.tracers.timeline import Timeline
from spoolscope.traces.abi import AT_FDCWD, S_IFDIR, S_IFMT
from spoolscope.traces.capture import Capture, Records
from spoolscope.traces.constants import CALL_OTHER_VIEW, CALL_PATH_FAULT
from spoolscope.traces.filesystems import SUBVOLUMES

CHUNK = 8192
# Errors of calls that are due to a mount only.
_OF_MOUNTS = (-errno.EXDEV, -errno.EBUSY)
Int = npt.NDArray[np.int64]


@dataclass
class Resolved:
    """Paths of all calls, in the capture's order of calls.

    Attributes:
        paths: Absolute names by id.
        path, path2: Path id per call, -1 if none.
        given, given2: Id of each path in the form in which it was given, -1 if that is the same.
        base, base2: Directory that each was relative to (enum spsc_path_base).
        comm: Name of the calling thread at that time, an index into comms.
        elsewhere: Whether a name led to another filesystem, mounted below a spool, or the call
            changed mounts there.
        unresolved: Calls on a spool whose object's name could not be found; those that returned
            before the moment of the snapshot are not counted.
        heirs: Processes that inherited files of the spool: pid, and time of the fork.
        state: State at the moment of the snapshot.
    """

    paths: list[bytes]
    path: npt.NDArray[np.int32]
    path2: npt.NDArray[np.int32]
    given: npt.NDArray[np.int32]
    given2: npt.NDArray[np.int32]
    base: npt.NDArray[np.int16]
    base2: npt.NDArray[np.int16]
    comm: npt.NDArray[np.int32]
    elsewhere: npt.NDArray[np.bool_]
    comms: list[bytes] = field(default_factory=list)
    unresolved: int = 0
    heirs: set[tuple[int, int]] = field(default_factory=set)
    state: State = field(init=False)


class Used(NamedTuple):
    """The names or object that a call uses.

    Attributes:
        first, second: Its paths.
        node: The object of its descriptor or address, if there is no path.
    """

    first: "Named"
    second: "Named"
    node: Node | None


class Resolver:
    """Walks calls and task events in time order."""

    def __init__(self, capture: Capture) -> None:
        self.capture = capture
        aliases = Aliases(capture.meta)
        spools = capture.meta.get("spools", [])
        repeating = frozenset(int(s["dev"]) for s in spools if s.get("fstype") in SUBVOLUMES)
        self.space = Namespace(repeating)
        self.tops = tuple(spool["mount"].encode().rstrip(b"/") + b"/" for spool in spools)
        # Aliases below a spool may be unmounted: `below` has them.
        kept = aliases.outside(self.tops) if "mounted_below" in capture.meta else aliases
        self.names = Names(kept, self.tops)
        # If there is one spool, inodes without a device are on it.
        self.only_dev = int(spools[0]["dev"]) if len(spools) == 1 else 0
        self.processes = Processes(capture, self.space, aliases)
        self.comms: dict[bytes, int] = {}
        self.unresolved = 0
        self.mounting = Mounting(capture, self)
        self.n_prelude = len(capture.records["prelude"])

    def begin(self, start: Start, out: Resolved, before: Int) -> None:
        """Go back to the start; calls before it keep the names that they have now."""
        paths = list(self.names.paths)
        self.names.clear()
        self.processes, self.unresolved = start.processes, 0
        calls = self.capture.records["syscall"]
        for column in (out.path, out.path2, out.given, out.given2):
            for at in before.tolist():
                if column[at] >= 0:
                    column[at] = self.names.id(paths[column[at]])
        for at in before[(out.path[before] < 0) & (calls["ino"][before] > 0)].tolist():
            key = (int(calls["dev"][at]), int(calls["ino"][at]))
            out.path[at] = self.id_of(self.space.lookup(key))

    def comm(self, tid: int) -> int:
        """Return the number of a thread's present name."""
        return self.comms.setdefault(self.processes.comms.get(tid, b""), len(self.comms))

    def id_of(self, node: Node | None) -> int:
        """Return the path id of a node, -1 if its path is unknown."""
        path = self.space.path(node) if node is not None else None
        return self.names.id(path) if path is not None else -1

    def named(self, process: Process, dirfd: int | None, raw: bytes, flags: int) -> Named:
        """Return the name that a path leads to."""
        found, below = self._named(process, dirfd, raw, flags), self.processes.below
        if not below.any or found.path < 0:
            return found
        way = self.names.paths[found.path]
        path = below.where(process.mount_ns, way)
        if path == way:
            return found
        return Named(-1 if path is None else self.names.id(path), found.base, way=way)

    def _named(self, process: Process, dirfd: int | None, raw: bytes, flags: int) -> Named:
        node: Node | None
        way: bytes | None = None
        if raw.startswith(b"/"):
            if process.cwd.root is None or flags & CALL_OTHER_VIEW:
                return self.names.named(b"", raw, BASE_ROOT)
            node, kind = process.cwd.root, BASE_ROOT
        elif dirfd is None or dirfd == AT_FDCWD:
            node, way, kind = process.cwd.node, process.cwd.way, BASE_CWD
        else:
            file = process.fds.get(dirfd)
            node, kind = (file.node if file else None), BASE_FD
            way = node.way if node is not None else None
        if way is not None:  # a replay mounts nothing there: the name begins at the top
            return self.names.named(way, raw, BASE_ROOT)._replace(given=-1)
        base = self.space.path(node) if node is not None else None
        if base is None:
            return Named(-1, kind)
        return self.names.named(base, raw, kind)

    def reached(self, row: Row, path: int) -> Node | None:
        """Return the object of a path that is not on a spool by its text.

        Such a path has a symbolic link into the spool, as ``~/Maildir`` may be. An unknown path is
        resolved by inode only for a directory, which has one name; a file may have several.
        """
        if not row.ino or (path < 0 and row.obj_mode & S_IFMT != S_IFDIR):
            return None
        return self.space.lookup((row.dev or self.only_dev, row.ino))

    def is_here(self, path: int) -> bool:
        """Return whether a path id is that of a name on a spool."""
        return path >= 0 and self.names.here[path]

    def behind(self, process: Process, shape: Shape, row: Row) -> Node | None:
        """Return the object of a descriptor, or of an address in a mapping."""
        key = (row.dev, row.ino)
        at = shape.fd if shape.fd >= 0 else shape.dirfd
        if at < 0:
            return (process.maps.get(key) or self.space.mapped(key)) if row.ino else None
        return self.of_descriptor(process, signed(row.args[at]), key)

    def of_descriptor(self, process: Process, fd: int, key: Key) -> Node | None:
        """Return the object of a descriptor, given the inode that the kernel recorded.

        If a descriptor has another inode than at its open, it was replaced in a way that is not
        recorded (passed over a socket): its old name is dropped.
        """
        file, ino = process.fds.get(fd), key[1]
        if file is not None and (not ino or file.key is None or file.key[1] == ino):
            return file.node
        found = self.space.lookup(key) if ino else None
        if file is not None and found is None:
            del process.fds[fd]
        elif file is not None and found is not None:
            process.fds[fd] = OpenFile(found, key, file.cloexec)
        return found

    def used(self, process: Process, shape: Shape, row: Row) -> Used:
        """Return the names or object that a call uses, as far as they are known."""
        strings, args = self.capture.strings, row.args
        first = second = NOTHING
        node: Node | None = None
        if shape.path >= 0 and row.path:
            dirfd = signed(args[shape.dirfd]) if shape.dirfd >= 0 else None
            first = self.named(process, dirfd, strings[row.path], row.flags)
            here = self.is_here(first.path) or first.is_elsewhere
            if not here and (node := self.reached(row, first.path)) is not None:
                first = Named(self.id_of(node), BASE_ROOT)
        else:
            node = self.behind(process, shape, row)
            first = Named(self.id_of(node), way=node.way if node is not None else None)
            # The call has no path, or one that is not recorded; an empty path names nothing.
            if shape.path >= 0 and first.path >= 0 and row.ret != -errno.ENOENT:
                by_fd = shape.dirfd >= 0 and signed(args[shape.dirfd]) >= 0
                first = first._replace(base=BASE_FD if by_fd else BASE_ROOT)
        if shape.path2 >= 0 and row.path2:
            dirfd = signed(args[shape.dirfd2]) if shape.dirfd2 >= 0 else None
            second = self.named(process, dirfd, strings[row.path2], row.flags)
        elif shape.has_text and row.path2:
            second = Named(self.text(strings[row.path2]))
        return Used(first, second, node)

    def done(self, process: Process, shape: Shape, row: Row, used: Used) -> Done:
        """Return a call with the names it used."""
        paths = self.names.paths
        path = paths[used.first.path] if used.first.path >= 0 else None
        path2 = paths[used.second.path] if used.second.path >= 0 else None
        way = used.first.way if used.first.is_elsewhere else None
        return Done(self.space, process, shape, row, path, path2, used.node, way)

    def text(self, raw: bytes) -> int:
        """Intern a name that is not resolved (symlink target, xattr name)."""
        return self.names.id(b"\0" + raw)


Show = Callable[[float], None]


def resolve(capture: Capture, show: Show = lambda _share: None) -> Resolved:
    """Name the objects of every call of a capture, and determine the state at its start.

    The calls of a prelude only change open files and names; they are not in the result.

    Args:
        capture: The capture.
        show: Called with the share that is done.
    """
    prelude = capture.records["prelude"]
    if not len(prelude):
        return _resolve(capture, show)
    calls = np.concatenate([prelude, capture.records["syscall"]])
    capture.records["syscall"] = calls[len(prelude) :]  # of the same memory
    out = _resolve(replace(capture, records={**capture.records, "syscall": calls}), show)
    for name in ("path", "path2", "given", "given2", "base", "base2", "comm", "elsewhere"):
        setattr(out, name, getattr(out, name)[len(prelude) :])
    return out


def _resolve(capture: Capture, show: Show) -> Resolved:
    """Name the objects of every call of a capture, and determine the state at its start.

    The calls made while the snapshot was taken are processed twice: first to find the start, then
    from there.
    """
    calls = capture.records["syscall"]
    resolver = Resolver(capture)
    n = len(calls)
    out = Resolved(
        resolver.names.paths,
        np.full(n, -1, np.int32),
        np.full(n, -1, np.int32),
        np.full(n, -1, np.int32),
        np.full(n, -1, np.int32),
        np.zeros(n, np.int16),
        np.zeros(n, np.int16),
        np.zeros(n, np.int32),
        np.zeros(n, np.bool_),
    )
    order = np.argsort(calls["end_ns"], kind="stable")
    finding = Finding(capture, resolver.space, resolver.processes)
    before, during = _within(calls, order, finding.cut_ns, finding.end_ns)
    timeline = Timeline(capture, resolver.processes, finding)
    total = max(during + n - before, 1)
    _go(resolver, out, order[:during], timeline, lambda gone: show(gone / total))
    timeline.until(finding.end_ns)
    start = finding.found()
    out.state = State(capture, start, resolver.space)
    resolver.begin(start, out, order[:before])
    later = Timeline(capture, resolver.processes, after_ns=start.cut_ns)
    _go(resolver, out, order[before:], later, lambda gone: show((during + gone) / total))
    out.comms, out.heirs = list(resolver.comms), resolver.processes.heirs
    out.unresolved = resolver.unresolved
    return out


def _within(calls: Records, order: Int, cut_ns: int, end_ns: int) -> tuple[int, int]:
    """Count the calls, in order of their ends, up to the cut and up to the end of the snapshot."""
    before = int(np.searchsorted(calls["end_ns"][order], cut_ns, "right"))
    met = np.flatnonzero((calls["start_ns"][order] <= end_ns) & (end_ns > cut_ns))
    return before, max(before, int(met.max(initial=-1)) + 1)


def _go(
    resolver: Resolver, out: Resolved, order: Int, timeline: Timeline, show: Callable[[int], None]
) -> None:
    """Resolve calls in the order in which they returned, with other records between them."""
    calls = resolver.capture.records["syscall"]
    for begin in range(0, len(order), CHUNK):
        show(begin)
        places = order[begin : begin + CHUNK]
        _go_on(resolver, out, calls[places], places, timeline)


def _go_on(
    resolver: Resolver, out: Resolved, calls: Records, places: Int, timeline: Timeline
) -> None:
    """Resolve a chunk of calls, whose places in the result are given."""
    processes = resolver.processes
    kinds = kinds_of(calls)
    others = iter(_rows(calls[kinds == OTHER], places[kinds == OTHER]))
    columns = (calls[name].tolist() for name in ("start_ns", "end_ns", "tid", "pid", "ino", "dev"))
    named = out.path.data
    comms: list[int] = []
    comm_of: dict[int, int] = {}  # by thread, since the last event
    next_ns = timeline.next_ns
    for place, kind, fd, start_ns, end_ns, tid, pid, ino, dev in zip(
        places.tolist(), kinds.tolist(), descriptors_of(calls).tolist(), *columns, strict=True
    ):
        if end_ns >= next_ns:
            timeline.until(end_ns)
            next_ns = timeline.next_ns
            comm_of.clear()
        process = processes.of(pid)
        # The kernel recorded the working directory as it was before the thread's first call.
        if processes.cwd_seen and (key := processes.cwd_seen.pop(tid, None)) is not None:
            processes.check_cwd(process, key)
        comm = comm_of.get(tid)
        if comm is None:
            comm = comm_of[tid] = resolver.comm(tid)
        comms.append(comm)
        if kind == OTHER:
            _resolve_call(resolver, process, out, next(others))
            continue
        node = resolver.of_descriptor(process, fd, (dev, ino))
        if kind != PLAIN:
            resolver.space.since_ns = start_ns
            if kind == CLOSE:
                process.fds.pop(fd, None)
        named[place] = path = resolver.id_of(node)
        if path < 0:
            _without_name(resolver, out, node, calls[len(comms) - 1], place)
    out.comm[places] = comms


def _without_name(
    resolver: Resolver, out: Resolved, node: Node | None, call: np.void, place: int
) -> None:
    """Note a call on a descriptor whose file has no known name."""
    out.elsewhere[place] = node is not None and node.way is not None
    if not out.elsewhere[place] and (
        call["ino"] or call["path"] or call["flags"] & CALL_PATH_FAULT
    ):
        resolver.unresolved += place >= resolver.n_prelude


def rows_of(calls: Records, order: Int) -> Iterator[Row]:
    """Yield calls in an order; chunk by chunk, as Python values take much memory."""
    for begin in range(0, len(order), CHUNK):
        places = order[begin : begin + CHUNK]
        yield from _rows(calls[places], places)


def _rows(calls: Records, places: Int) -> Iterator[Row]:
    columns = [calls[member].tolist() for member in Row._fields[1:]]
    return map(Row._make, zip(places.tolist(), *columns, strict=True))


def _resolve_call(resolver: Resolver, process: Process, out: Resolved, row: Row) -> None:
    """Resolve one call's names, then apply its effects on descriptors and cwd."""
    i, shape = row.position, SHAPES[row.call]
    if shape.mounts and row.args[5]:
        resolver.processes.enter(process, row.args[5])
    used = resolver.used(process, shape, row)
    out.path[i], out.base[i], out.given[i], _ = used.first
    out.path2[i], out.base2[i], out.given2[i], _ = used.second
    out.elsewhere[i] = shape.mounts or _is_elsewhere(used.first, used.second, row.ret)
    if (
        used.first.path < 0
        and not out.elsewhere[i]
        and (row.ino or row.path or row.flags & CALL_PATH_FAULT)
        and not shape.is_exec
    ):
        resolver.unresolved += (
            i >= resolver.n_prelude
        )  # without a call by an empty path, as in open(""), which names nothing
    if not may_change(row):
        return
    done = resolver.done(process, shape, row, used)
    apply(done)
    if row.ret < 0:
        return
    if shape.moves:
        process.cwd.way = used.first.way
    elif shape.mounts:
        resolver.mounting.apply(done, used.first, used.second)
    elif shape.renames and resolver.processes.below.any and done.path and done.path2:
        resolver.processes.below.renamed(done.path, done.path2)


def _is_elsewhere(first: Named, second: Named, ret: int) -> bool:
    """Return whether a name led to another filesystem, or the call failed because of a mount."""
    if first.way is None and second.way is None:
        return False
    return first.is_elsewhere or second.is_elsewhere or ret in _OF_MOUNTS
