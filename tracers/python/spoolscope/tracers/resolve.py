"""Resolution of calls to files: follows descriptors and working directories.

The BPF programs record what the caller passed; here fd tables and cwds are followed
through open, dup, close, chdir, fork and exec in the order in which the calls returned.
"""

import errno
import gc
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import count
from typing import Any

import numpy as np
import numpy.typing as npt

from spoolscope.tracers.effects import (
    SHAPES,
    Row,
    apply,
    may_change,
    opened,
    removed,
    renamed,
)
from spoolscope.tracers.named import BASE_FD, BASE_ROOT, NOTHING, Named
from spoolscope.tracers.plain_calls import (
    CLOSE,
    LOOK,
    OPEN,
    OTHER,
    PLAIN,
    REMOVE,
    RENAME,
    descriptors_of,
    flags_of,
    kinds_of,
    second_descriptors_of,
    without_path,
)
from spoolscope.tracers.processes import Process
from spoolscope.tracers.resolved import Resolved, Views
from spoolscope.tracers.resolver import CHUNK, Resolver, rows_at
from spoolscope.tracers.start import Finding
from spoolscope.tracers.state import State
from spoolscope.tracers.timeline import Timeline
from spoolscope.traces.capture import Capture, Records
from spoolscope.traces.constants import CALL_PATH_FAULT

# Errors of calls that are due to a mount only.
_OF_MOUNTS = (-errno.EXDEV, -errno.EBUSY)
Int = npt.NDArray[np.int64]
Bool = npt.NDArray[np.bool_]
Show = Callable[[float], None]


def resolve(capture: Capture, show: Show = lambda _share: None) -> Resolved:
    """Name the objects of every call of a capture, and determine the state at its start.

    The calls of a prelude only change open files and names; they are not in the result.

    Args:
        capture: The capture.
        show: Called with the share that is done.
    """
    collecting = gc.isenabled()
    gc.disable()  # names last until the end: to go through them again and again finds nothing
    try:
        return _resolve_all(capture, show)
    finally:
        if collecting:
            gc.enable()
            if sum(map(len, capture.records.values())) > CHUNK:
                gc.collect()  # what was needed to name calls is no more


def _resolve_all(capture: Capture, show: Show) -> Resolved:
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
        resolver.names.ids,
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
    out.forget(order[before:during])
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
        _go_on(resolver, out, calls.take(places), places, timeline)


def _go_on(
    resolver: Resolver, out: Resolved, calls: Records, places: Int, timeline: Timeline
) -> None:
    """Resolve a chunk of calls, whose places in the result are given."""
    processes, space, paths = resolver.processes, resolver.space, resolver.names.paths
    kinds, descriptors = kinds_of(calls), descriptors_of(calls)
    others = rows_at(calls.compress(kinds == OTHER), places[kinds == OTHER])
    looks, seconds = _looks(calls, kinds >= LOOK), _seconds(calls, kinds == RENAME)
    ends, tids = calls["end_ns"].tolist(), calls["tid"].tolist()
    living, cwd_seen, views = processes.living(), processes.cwd_seen, out.views()
    named, based, given = views.path, views.base, views.given
    comms = _Comms(resolver, tids)
    next_at = bisect_left(ends, timeline.next_ns)
    for at, place, kind, fd, key, start_ns, pid in zip(
        count(), places.tolist(), kinds.tolist(), descriptors.tolist(), *_members(calls)
    ):
        if at == next_at:
            comms.until(at)
            timeline.until(ends[at])
            next_at = bisect_left(ends, timeline.next_ns, at)
        process = living.get(pid) or processes.of(pid)
        # The kernel recorded the working directory as it was before the thread's first call.
        if cwd_seen and (cwd := cwd_seen.pop(tids[at], None)) is not None:
            processes.check_cwd(process, cwd)
        if kind == OTHER:
            _resolve_call(resolver, process, views, next(others))
            continue
        if kind < LOOK:
            node = resolver.of_descriptor(process, fd, key)
            path = resolver.id_of(node) if node is not None else -1
            way = node.way if path < 0 and node is not None else None
            if kind != PLAIN:
                space.since_ns = start_ns
                if kind == CLOSE:
                    process.fds.pop(fd, None)
        else:
            text, seen, mode, ret, flags = next(looks)
            first, _ = resolver.looked_at(process, fd, key, text, seen, mode)
            path, based[place], given[place], way = first
            if kind >= OPEN:
                space.since_ns = start_ns
                name = paths[path] if path >= 0 else None
            if kind == OPEN:
                opened(space, process, name, way, ret, flags, key, mode, place)
            elif kind == REMOVE:
                removed(space, name, flags)
            elif kind == RENAME:
                second = _second(resolver, process, *next(seconds), seen)
                way = _renamed(resolver, views, place, name, second, flags) or way
            elif way is not None:
                views.elsewhere[place] = ret in _OF_MOUNTS
        named[place] = path
        if path < 0:
            _without_name(resolver, views, way, calls[at], place)
    comms.until(len(calls))
    out.comm[places] = comms.numbers
    _name_bare(out, places, (kinds == PLAIN) & without_path(calls), descriptors)


def _name_bare(
    out: Resolved, places: Int, pathless: Bool, descriptors: npt.NDArray[np.int32]
) -> None:
    """Note where calls begin that might have had a path and named an object without one."""
    bare = pathless & (out.path[places] >= 0)
    out.base[places[bare]] = np.where(descriptors[bare] >= 0, BASE_FD, BASE_ROOT)


class _Comms(dict[int, int]):
    """Numbers of the present names of threads, by thread.

    Args:
        resolver: Has the names.
        tids: Threads of calls.

    Attributes:
        numbers: The number of the calling thread's name, call by call.
    """

    def __init__(self, resolver: Resolver, tids: list[int]) -> None:
        self._resolver, self._tids = resolver, tids
        self.numbers: list[int] = []

    def until(self, at: int) -> None:
        """Name the threads of the calls before this one; names may then change."""
        self.numbers.extend(map(self.__getitem__, self._tids[len(self.numbers) : at]))
        self.clear()

    def __missing__(self, tid: int) -> int:
        number = self[tid] = self._resolver.comm(tid)
        return number


def _members(calls: Records) -> Iterator[Iterable[Any]]:
    """Yield device and inode, start and process of calls, each as Python values."""
    yield zip(calls["dev"].tolist(), calls["ino"].tolist(), strict=True)
    yield calls["start_ns"].tolist()
    yield calls["pid"].tolist()


def _looks(calls: Records, which: Bool) -> Iterator[tuple[int, int, int, int, int]]:
    """Yield path, recorded flags, mode of the object, result, and flags that calls passed."""
    calls = calls.compress(which)
    members = (calls[name].tolist() for name in ("path", "flags", "obj_mode", "ret"))
    return zip(*members, flags_of(calls).tolist(), strict=True)


def _seconds(calls: Records, which: Bool) -> Iterator[tuple[int, int]]:
    """Yield the descriptor at which the second path begins, and the path, of calls."""
    calls = calls.compress(which)
    return zip(second_descriptors_of(calls).tolist(), calls["path2"].tolist(), strict=True)


def _second(resolver: Resolver, process: Process, dirfd: int, text: int, flags: int) -> Named:
    """Return the name that the second path of a call leads to."""
    return resolver.named(process, dirfd, resolver.capture.strings[text], flags)


def _renamed(
    resolver: Resolver, out: Views, place: int, old: bytes | None, second: Named, flags: int
) -> bytes | None:
    """Apply a rename to a second name; return the way that led it to another filesystem."""
    out.path2[place], out.base2[place], out.given2[place], way = second
    elsewhere = out.elsewhere[place] = way is not None and second.is_elsewhere
    new = resolver.names.paths[second.path] if second.path >= 0 else None
    renamed(resolver.space, old, new, flags)
    below = resolver.processes.below
    if below.any and old and new:
        below.renamed(old, new)
    return way if elsewhere else None


def _without_name(
    resolver: Resolver, out: Views, way: bytes | None, call: np.void, place: int
) -> None:
    """Note a call whose object has no known name; ``way`` is the name that led to it."""
    out.elsewhere[place] = way is not None
    if way is None and (call["ino"] or call["path"] or call["flags"] & CALL_PATH_FAULT):
        resolver.unresolved += place >= resolver.n_prelude


def _resolve_call(resolver: Resolver, process: Process, out: Views, row: Row) -> None:
    """Resolve one call's names, then apply its effects on descriptors and cwd."""
    i, shape = row.position, SHAPES[row.call]
    if shape.mounts and row.args[5]:
        resolver.processes.enter(process, row.args[5])
    done = resolver.done(process, shape, row)
    first, second = done.first, done.second
    out.path[i], out.base[i], out.given[i], way = first
    if second is not NOTHING:
        out.path2[i], out.base2[i], out.given2[i], _ = second
    by_mount = first.way is not None or second.way is not None
    elsewhere = shape.mounts or (by_mount and _is_elsewhere(first, second, row.ret))
    if elsewhere:
        out.elsewhere[i] = True
    elif (
        first.path < 0
        and (row.ino or row.path or row.flags & CALL_PATH_FAULT)
        and not shape.is_exec
    ):
        # without a call by an empty path, as in open(""), which names nothing
        resolver.unresolved += i >= resolver.n_prelude
    if not may_change(row):
        return
    apply(done)
    if row.ret < 0:
        return
    if shape.moves:
        process.cwd.way = way
    elif shape.mounts:
        resolver.mounting.apply(done)
    elif shape.renames and resolver.processes.below.any and done.path and done.path2:
        resolver.processes.below.renamed(done.path, done.path2)


def _is_elsewhere(first: Named, second: Named, ret: int) -> bool:
    """Return whether a mount led a name to another filesystem, or made the call fail."""
    return first.is_elsewhere or second.is_elsewhere or ret in _OF_MOUNTS
