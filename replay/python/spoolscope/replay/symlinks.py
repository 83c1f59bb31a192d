"""Names that lead through symlinks, and the names that they stood for at each moment.

Two names of one file would be two files for the order of calls and for the final tree; and absolute
symlinks lead elsewhere in a replay. So a call is planned by the name without symlinks.
"""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from spoolscope.replay import seen_links
from spoolscope.replay.calls import Calls
from spoolscope.replay.columns import are_several, column
from spoolscope.replay.ops import Ops, are
from spoolscope.replay.strings import Strings
from spoolscope.replay.walking import END_SLASH, Lookup, Walked, end_of, walk
from spoolscope.traces.abi import (
    AT_REMOVEDIR,
    AT_SYMLINK_FOLLOW,
    AT_SYMLINK_NOFOLLOW,
    O_CREAT,
    O_EXCL,
    O_NOFOLLOW,
    RENAME_EXCHANGE,
    S_IFLNK,
    S_IFMT,
)
from spoolscope.traces.calls import CALLS, of_effect, of_kind
from spoolscope.traces.flat import NONE
from spoolscope.traces.text import decoded
from spoolscope.traces.trace import Trace

_MAKE, _REMOVE, _RENAME = of_kind("symlink"), of_kind("unlink"), of_kind("rename")
_LINK, _OPEN, _STAT = of_kind("link"), of_kind("open"), of_kind("stat")
# These calls work on a symlink itself even if a slash follows its name.
_ON_LAST = of_effect("makes", "removes", "renames")
# These calls work on a symlink itself without AT_SYMLINK_FOLLOW.
_NOT_WITH_FOLLOW = tuple(
    name
    for name, call in CALLS.items()
    if "flags" in call.args and (name in _LINK or "handle" in call.args)
)
# These calls work on a symlink itself: those that other calls have a twin of that follows it, too.
_ON_LINKS = (
    *_ON_LAST,
    *_LINK,
    *_NOT_WITH_FOLLOW,
    *of_kind("readlink"),
    *(f"l{name}" for name, call in CALLS.items() if f"l{name}" in CALLS and "path" in call.args),
)
# These calls do so with AT_SYMLINK_NOFOLLOW.
_ONLY_WITH_NOFOLLOW = tuple(
    name
    for name, call in CALLS.items()
    if call.klass == "meta" and {"dirfd", "flags"} <= {*call.args}
)
# Limit of passes over the calls in search of renamed symlinks.
PASSES = 20
_TIMES = ("start_ns", "end_ns")
_FIRST, _SECOND = ("path", "given", "base"), ("path2", "given2", "base2")
_ALWAYS = np.iinfo(np.int64).max


@dataclass(frozen=True)
class _Span:
    """A symlink from the call that made it to the one that removed it, each (begin, end)."""

    target: bytes
    made: tuple[int, int]
    gone: tuple[int, int] = (_ALWAYS, _ALWAYS)

    def holds(self, start_ns: int, end_ns: int, *, succeeded: bool) -> bool:
        """Return if a call met it; a call that failed while it was made or removed did not."""
        if succeeded:
            return self.made[0] <= end_ns and start_ns <= self.gone[1]
        return self.made[1] <= start_ns and end_ns <= self.gone[0]


class Symlinks:
    """The symlinks of a trace.

    Attributes:
        followed: Calls that got another name so far.
        entries: Links at the start that only calls show, as the snapshot would have shown them.
    """

    def __init__(self, trace: Trace, calls: Calls, strings: Strings) -> None:
        self._strings = strings
        self._mounts = _mounts(trace, strings)
        # Each of several spools is a directory of the target.
        self._depth = int(are_several(trace))
        self._spans: dict[bytes, list[_Span]] = {}
        # A mask of the names of the trace: those that may lead through a symlink.
        self._through = np.zeros(0, np.bool_)
        self._known: dict[bytes, int] = {}
        self.followed = 0
        at_start = dict(_at_start(trace, strings))
        links = seen_links.seen(trace, calls, strings)
        links = links[[strings.text(int(path)) not in at_start for path in links["path"]]]
        if len(links):
            names = {strings.text(int(path)) for path in links["path"]}
            links = seen_links.at_start(links, self._changes(calls, names), strings)
        said = seen_links.targets(links, strings)
        self.entries = seen_links.entries(links, said, strings)
        at_start |= said
        if at_start or calls.any_of(_MAKE):
            self._spans = self._found(calls, at_start)
        spans = [span for found in self._spans.values() for span in found]
        bounds = [moment for span in spans for moment in (*span.made, *span.gone)]
        self._moments = np.unique(np.array(bounds, np.int64))

    def follow(self, ops: Ops) -> None:
        """Give calls that lead through symlinks the names that they stood for.

        Names that were given with ``..`` or an end, such as a slash, are walked as the kernel does.
        """
        special = [ops[given] != NONE for given in ("given", "given2")]
        pairs = are(ops["op"], (*_RENAME, *_LINK))
        changed = np.zeros(len(ops), np.bool_)
        if self._spans:
            before = ops["path"].copy(), ops["path2"].copy()
            self._replace(ops, "path", _follows(ops), ~special[0])
            self._replace(ops, "path2", np.zeros(len(ops), np.bool_), pairs & ~special[1])
            changed |= (before[0] != ops["path"]) | (before[1] != ops["path2"])
        for second, rows in enumerate(map(np.flatnonzero, special)):
            if len(rows):
                changed[rows] |= self._lead(ops, rows, second=bool(second))
        self.followed += int(changed.sum())

    def _lead(self, ops: Ops, rows: npt.NDArray[np.intp], *, second: bool) -> npt.NDArray[np.bool_]:
        """Work out where names lead that were given with ``..`` or an end.

        Returns:
            Mask of those that lead through symlinks.
        """
        member, given, base = _SECOND if second else _FIRST
        some = ops[rows]
        final = np.zeros(len(some), np.bool_) if second else _follows(some)
        on_last = are(some["op"], (*_ON_LAST, *_LINK) if second else _ON_LAST)
        walked: dict[tuple[object, ...], Walked] = {}
        found = []
        for at, op in enumerate(some):
            met = int(op["start_ns"]), int(op["end_ns"]), bool(op["ret"] >= 0)
            epochs = (int(np.searchsorted(self._moments, ns, "right")) for ns in met[:2])
            key = int(op[given]), int(op[member]), final[at], on_last[at], met[2], *epochs
            if key not in walked:
                name = self._strings.text(key[0])
                end = end_of(name)
                follows = bool(final[at]) or (end == END_SLASH and not on_last[at])
                way = self._walk(name, self._at(met), final=follows, failed=not met[2])
                walked[key] = way or Walked(self._strings.text(key[1]), name, end, 0)
            found.append(walked[key])
        ops[member][rows] = self._numbers([way.path for way in found])
        ops[given][rows] = self._numbers([way.given for way in found])
        ops[base][rows] |= np.array([way.end << 4 for way in found], np.uint8)
        return np.array([way.links > 0 for way in found])

    def stood_at_start(self, paths: npt.NDArray[np.uint32]) -> npt.NDArray[np.bool_]:
        """Return which names led to no other name of the spool when the recording began."""
        stood = np.ones(len(paths), np.bool_)
        if self._spans:
            for at in np.flatnonzero(self._leads(paths)):
                name = self._strings.text(int(paths[at]))
                way = self._walk(name, self._at((-1, -1, True)), final=False)
                stood[at] = way is None or way.path == name
        return stood

    def _leads(self, paths: npt.NDArray[np.uint32]) -> npt.NDArray[np.bool_]:
        """Return which names may lead through a symlink."""
        known = paths < len(self._through)
        known[known] = self._through[paths[known]]
        return known

    def _replace(
        self,
        ops: Ops,
        member: str,
        final: npt.NDArray[np.bool_],
        which: npt.NDArray[np.bool_],
    ) -> None:
        rows = np.flatnonzero(self._leads(ops[member]) & which)
        some = ops[rows]
        epochs = [np.searchsorted(self._moments, some[name], "right") for name in _TIMES]
        keys = np.stack([some[member], final[rows], some["ret"] >= 0, *epochs], axis=1)
        _, first, inverse = np.unique(keys, axis=0, return_index=True, return_inverse=True)
        names = []
        for at in first:
            op = some[at]
            met = int(op["start_ns"]), int(op["end_ns"]), bool(op["ret"] >= 0)
            name = self._strings.text(int(op[member]))
            way = self._walk(name, self._at(met), final=bool(final[rows[at]]))
            names.append(name if way is None else way.path)
        ops[member][rows] = self._numbers(names)[inverse.ravel()]

    def _numbers(self, names: list[bytes]) -> npt.NDArray[np.uint32]:
        new = list({name for name in names if name not in self._known})
        self._known |= self._strings.known(new)
        for name in new:
            if name not in self._known:
                self._known[name] = self._strings.add(name)
        return np.array([self._known[name] for name in names], np.uint32)

    def _at(self, met: tuple[int, int, bool]) -> Lookup:
        start_ns, end_ns, succeeded = met

        def target(name: bytes) -> bytes | None:
            for span in self._spans.get(name, ()):
                if span.holds(start_ns, end_ns, succeeded=succeeded):
                    return span.target
            return None

        return target

    def _walk(
        self, name: bytes, target_of: Lookup, *, final: bool, failed: bool = False
    ) -> Walked | None:
        return walk(name, target_of, self._below, final=final, floor=self._depth, failed=failed)

    def _below(self, target: bytes) -> bytes | None:
        """Return a symlink's target; an absolute one below the replay's, or None if outside."""
        if not target.startswith(b"/"):
            return target
        for mount, name in self._mounts:
            if target == mount or target.startswith(mount.rstrip(b"/") + b"/"):
                return name + target[len(mount.rstrip(b"/")) :]
        return None

    def _found(self, calls: Calls, at_start: dict[bytes, bytes]) -> dict[bytes, list[_Span]]:
        """Return all symlinks by name; the calls are read again for those that were renamed."""
        names, spans = set(at_start), dict[bytes, list[_Span]]()
        self._through = self._strings.below_any(list(names))
        for _ in range(PASSES):
            spans = self._lived(at_start, self._changes(calls, names))
            new = spans.keys() - names
            if not new:
                break
            names |= new
            self._through |= self._strings.below_any(list(new))
        return spans

    def _changes(self, calls: Calls, names: set[bytes]) -> Ops:
        """Return calls that make symlinks, or change these names or those above, by end time."""
        above = {b"/".join(parts[:n]) for parts in _split(names) for n in range(1, len(parts) + 1)}
        numbers = [*self._strings.known(list(above)).values(), *self._perhaps(above)]
        found = []
        for ops in calls.named((*_MAKE, *_REMOVE, *_RENAME, *_LINK), self._strings):
            ours = np.any([np.isin(ops[name], numbers) for name in (*_FIRST[:2], *_SECOND[:2])], 0)
            made = are(ops["op"], _MAKE)
            found.append(ops[(ours | made) & (ops["ret"] >= 0)])
        changes: Ops = np.concatenate(found)
        return changes[np.argsort(changes["end_ns"], kind="stable")]

    def _perhaps(self, names: set[bytes]) -> list[int]:
        """Return names through symlinks that may stand for some names: their last parts agree."""
        lasts = {_last(name) for name in names}
        through = np.flatnonzero(self._through).tolist()
        return [number for number in through if _last(self._strings.text(number)) in lasts]

    def _lived(self, at_start: dict[bytes, bytes], changes: Ops) -> dict[bytes, list[_Span]]:
        """Apply the changes in order; return the spans in which names were symlinks."""
        before = -_ALWAYS, -_ALWAYS
        living = {name: _Span(target, before) for name, target in at_start.items()}
        spans = defaultdict[bytes, list[_Span]](list)
        for op in changes:
            when = int(op["start_ns"]), int(op["end_ns"])
            gone, come = self._done(op, living)
            for name in living.keys() & gone:
                spans[name].append(_Span(living[name].target, living.pop(name).made, when))
            living |= {name: _Span(target, when) for name, target in come.items()}
        for name, span in living.items():
            spans[name].append(span)
        return dict(spans)

    def _done(
        self, op: np.void, living: dict[bytes, _Span]
    ) -> tuple[set[bytes], dict[bytes, bytes]]:
        """Return the names at which a call removed symlinks, and those it made, with targets."""
        kind, path = int(op["op"]), self._real(op, living, second=False)
        if kind in _ids(*_MAKE):
            target = self._name(op["path2"])
            return {path}, {path: target} if path and target else {}
        if kind in _ids(*_REMOVE):
            return (set() if op["flags"] & AT_REMOVEDIR else {path}), {}
        path2 = self._real(op, living, second=True)
        if kind in _ids(*_LINK):
            follows = kind in _ids("linkat") and op["flags"] & AT_SYMLINK_FOLLOW
            made = path in living and path2 and not follows
            return set(), {path2: living[path].target} if made else {}
        gone, come = _moved(living, path, path2)
        if op["flags"] & RENAME_EXCHANGE:
            more_gone, more = _moved(living, path2, path)
            return gone | more_gone, come | more
        return {*gone, path2}, come

    def _real(self, op: np.void, living: dict[bytes, _Span], *, second: bool) -> bytes:
        """Return the first or second name of a call by the directory that it led to.

        Args:
            op: The call.
            living: The symlinks at that time.
            second: The second name is meant.
        """
        path, given, _ = _SECOND if second else _FIRST
        name = self._name(op[path] if op[given] == NONE else op[given])

        def target(link: bytes) -> bytes | None:
            span = living.get(link)
            return None if span is None else span.target

        way = self._walk(name, target, final=False)
        return self._name(op[path]) if way is None else way.path

    def _name(self, number: int) -> bytes:
        return b"" if number == NONE else self._strings.text(int(number))


def _ids(*names: str) -> list[int]:
    return [CALLS[name].id for name in names]


def _split(names: set[bytes]) -> Iterator[list[bytes]]:
    return (name.split(b"/") for name in names)


def _last(name: bytes) -> bytes:
    return name.rstrip(b"/").rpartition(b"/")[2]


def _is_below(name: bytes, directory: bytes) -> bool:
    return bool(directory) and (name == directory or name.startswith(directory + b"/"))


def _moved(
    living: dict[bytes, _Span], path: bytes, to: bytes
) -> tuple[set[bytes], dict[bytes, bytes]]:
    """Return the symlinks at a name and below, and their names and targets after a rename."""
    gone = {name for name in living if _is_below(name, path)}
    come = {to + name[len(path) :]: living[name].target for name in gone if to}
    return gone, come


def _follows(ops: Ops) -> npt.NDArray[np.bool_]:
    """Return which calls follow a symlink that they name."""
    kind, flags = ops["op"], ops["flags"]
    itself = are(kind, _ON_LINKS)
    itself |= are(kind, _ONLY_WITH_NOFOLLOW) & (flags & AT_SYMLINK_NOFOLLOW > 0)
    new = flags & (O_CREAT | O_EXCL) == O_CREAT | O_EXCL
    itself &= ~(are(kind, _NOT_WITH_FOLLOW) & (flags & AT_SYMLINK_FOLLOW > 0))
    itself |= are(kind, _OPEN) & (new | (flags & O_NOFOLLOW > 0))
    seen = ops["obj_mode"] & S_IFMT
    # With a slash at its end a name is always followed; older traces do not have that slash.
    itself &= ~(are(kind, _STAT) & (seen != 0) & (seen != S_IFLNK))
    follows: npt.NDArray[np.bool_] = ~(itself | (seen == S_IFLNK))
    return follows


def _at_start(trace: Trace, strings: Strings) -> Iterator[tuple[bytes, bytes]]:
    """Yield the symlinks of the snapshot, and their targets."""
    for tree in trace.parts("tree", ("path_id", "target_id", "mode")):
        links = column(tree, "mode", 0) & S_IFMT == S_IFLNK
        paths = strings.of(column(tree, "path_id")[links])
        targets = strings.of(column(tree, "target_id")[links])
        for path, target in zip(paths.tolist(), targets.tolist(), strict=True):
            if NONE not in (path, target):
                yield strings.text(path), strings.text(target)


def _mounts(trace: Trace, strings: Strings) -> list[tuple[bytes, bytes]]:
    """Return the mount points of spools, the deepest first, and their names below the target."""
    spools = trace.meta.get("spools", [])
    found = [(decoded(spool["mount"]), strings.below(b"", at)) for at, spool in enumerate(spools)]
    return sorted(found, key=lambda mount: -len(mount[0]))
