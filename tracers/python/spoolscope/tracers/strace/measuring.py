"""Positions, sizes and modes of files, as far as they certainly follow from strace's calls."""

from collections import deque
from typing import NamedTuple

import numpy as np

from spoolscope.tracers.effects import Row, Shape, signed
from spoolscope.tracers.processes import Process
from spoolscope.tracers.strace.objects import (
    DEVICE,
    NOWHERE,
    ZERO,
    Object,
    Objects,
    Quantity,
    known,
)
from spoolscope.tracers.strace.sizes import CLONES, Place, moved
from spoolscope.traces.abi import (
    F_SETFL,
    FCNTL_LOCKS,
    O_APPEND,
    O_CREAT,
    O_TRUNC,
    S_IFMT,
    S_IFREG,
    SEEK_END,
)
from spoolscope.traces.calls import CALLS, of_effect, of_kind
from spoolscope.traces.capture import Records

FCNTL = CALLS["fcntl"].id
STATS, OPENS = of_kind("stat", "fstat"), of_kind("open")
READS, WRITES = of_kind("read"), of_kind("write")
RESIZES = of_kind("ftruncate", "truncate", "fallocate")
COPIES = of_kind("copy_range", "sendfile", "splice")
NO_SIZE = of_effect("closes")
LOOKS, TELLS, APPENDS, GROWS, CHANGES = range(5)
CHANGING = {APPENDS, GROWS, CHANGES}
MOST_AT_ONCE = 64
# strace notes the start of a call, prints its arguments, and measures its duration from then: the
# end is later than start plus duration, by the time of the printing.
LATE_NS = 1_000_000


class Use(NamedTuple):
    """A recent call on an object, with its relation to the size (LOOKS and so on)."""

    position: int
    tid: int
    end_ns: int
    kind: int

    def may_meet(self, row: Row) -> bool:
        """Return whether a later call of another thread may have begun before this one ended."""
        return self.tid != row.tid and self.end_ns + LATE_NS > row.start_ns


class Measuring:
    """Computes the state before and after the calls on each object, in the order of their ends.

    The order of concurrent calls is unknown: values that depend on it stay unknown.

    Args:
        calls: Records, filled in by ``fill``.
    """

    def __init__(self, calls: Records) -> None:
        self.objects = Objects()
        self._calls = calls
        self._positions: dict[int, Quantity | None] = {}
        self._flags: dict[int, int] = {}
        self._movers: dict[int, deque[Use]] = {}
        self._uses: dict[int, deque[Use]] = {}
        # ino; position and size, each an unknown and bytes; mode, an unknown
        self._found = np.tile(np.array([0, *NOWHERE, *NOWHERE, 0]), (len(calls), 1))
        self._sized = np.zeros(len(calls), np.bool_)

    def opened(self, description: int, flags: int) -> None:
        """Note that a file was opened."""
        self._positions[description] = ZERO
        self._flags[description] = flags

    def found_open(self, description: int) -> Quantity:
        """Note that a file was open at the start; return its position."""
        self._positions[description] = position = self.objects.begun()
        return position

    def truncated(self, found: Object, row: Row) -> None:
        """Note that a file was truncated by its name."""
        found.size = known(row.args[1])
        self._used(found, row, CHANGES)

    def call(self, process: Process, shape: Shape, row: Row, found: Object) -> None:
        """Note position and size at a call, and update them by its result."""
        i = row.position
        file = process.fds.get(signed(row.args[shape.fd])) if shape.fd >= 0 else None
        own = file.description if file is not None else 0
        position = self._positions.get(own)
        appends = bool(self._flags.get(own, 0) & O_APPEND)
        asked = int(self._calls["count"][i]) or row.args[2]
        kind = _kind(shape, row, asked=asked, appends=appends)
        self._found[i] = (found.ino, *(position or NOWHERE), *NOWHERE, 0)
        certain = self._used(found, row, kind)
        self.objects.saw_mode(found, row.obj_mode)
        if shape.name in STATS:
            size = int(self._calls["size"][i])
            if certain and size >= 0 and row.obj_mode & S_IFMT == S_IFREG:
                self.objects.saw_size(found, size)
        elif shape.name in OPENS:
            found.size = ZERO if kind == CHANGES else found.size
        elif row.ret >= 0:
            if shape.name == "fchmod":
                self.objects.chmod(found, row.args[1])
            elif shape.name == "fcntl" and row.args[1] == F_SETFL:
                self._flags[own] = row.args[2]
            elif shape.name in COPIES:
                self._copied(process, shape, row)
            place = Place(self.objects, row, found, appends, position, asked, certain)
            self._move(own, row, position, moved(shape.name, place))
        if kind in CHANGING and not certain:
            found.size = self.objects.unknowns.new()
        self._sized[i] = shape.name not in NO_SIZE
        self._found[i, 5] = found.mode.unknown
        if not self._at_once(found, row, kind):
            self._found[i, 3:5] = found.size

    def _copied(self, process: Process, shape: Shape, row: Row) -> None:
        """Make size and position of the target of a copy unknown: they are not computed."""
        into = process.fds.get(signed(row.args[shape.fd2]))
        if into is not None:
            self._positions[into.description] = None
            if into.key:
                found = self.objects.of(into.key[1])
                found.size = self.objects.unknowns.new()
                self._used(found, row, CHANGES)

    def _move(self, own: int, row: Row, before: Quantity | None, after: Quantity | None) -> None:
        """Set a position; positions of concurrent calls on one open file become unknown."""
        self._positions[own] = after
        if after == before:
            return
        recent = self._movers.setdefault(own, deque(maxlen=MOST_AT_ONCE))
        others = [use.position for use in recent if use.may_meet(row)]
        recent.append(Use(row.position, row.tid, row.end_ns, CHANGES))
        if others:
            self._found[[*others, row.position], 1:3] = NOWHERE

    def _used(self, found: Object, row: Row, kind: int) -> bool:
        """Note a call on an object; return whether its effect on the size is certain."""
        uses = self._uses.setdefault(found.ino, deque(maxlen=MOST_AT_ONCE))
        at_once = {use.kind for use in uses if use.may_meet(row)}
        uses.append(Use(row.position, row.tid, row.end_ns, kind))
        if kind in (APPENDS, GROWS):  # neither a sum nor a maximum depends on the order
            return at_once <= {LOOKS, kind}
        return at_once <= {LOOKS} if kind == CHANGES else not at_once & CHANGING

    def _at_once(self, found: Object, row: Row, kind: int) -> bool:
        """Return whether the size changed during the call; forget sizes of concurrent calls."""
        others = [use for use in self._uses[found.ino] if use.may_meet(row)]
        if kind in CHANGING:
            for use in others:
                self._found[use.position, 3:5] = NOWHERE
        return any(use.kind in CHANGING for use in others)

    def fill(self) -> None:
        """Write the computed values into the records, without replacing values from strace."""
        calls, found = self._calls, self._found
        self.objects.settle()
        resolved = self.objects.unknowns.values()
        calls["ino"], calls["dev"] = found[:, 0], DEVICE * (found[:, 0] > 0)
        lock = (calls["call"] == FCNTL) & np.isin(calls["args"][:, 1], FCNTL_LOCKS)
        position = np.where(resolved[found[:, 1]] < 0, -1, resolved[found[:, 1]] + found[:, 2])
        calls["pos"] = np.where(lock, calls["pos"], position)
        size = np.where(resolved[found[:, 3]] < 0, -1, resolved[found[:, 3]] + found[:, 4])
        fresh = ~lock & self._sized & (calls["size"] < 0)
        calls["size"][fresh] = size[fresh]
        mode = np.where(self._sized, np.maximum(resolved[found[:, 5]], 0), 0)
        calls["obj_mode"] = np.where(calls["obj_mode"] > 0, calls["obj_mode"], mode)


def _kind(shape: Shape, row: Row, *, asked: int, appends: bool) -> int:
    """Return the relation of a call to the size of its object."""
    if row.ret < 0:
        return LOOKS
    if shape.name in WRITES and row.ret:
        return APPENDS if appends else GROWS
    if shape.name in RESIZES or (shape.name in OPENS and flags_of_open(shape, row) & O_TRUNC):
        return CHANGES
    if shape.name == "ioctl" and row.args[1] in CLONES:
        return CHANGES
    at_end = shape.name == "lseek" and row.args[2] == SEEK_END
    short = shape.name in READS and 0 < row.ret < asked
    return TELLS if at_end or short or shape.name in STATS else LOOKS


def flags_of_open(shape: Shape, row: Row) -> int:
    """Return the open flags of a call."""
    if shape.name == "creat":
        return O_CREAT | O_TRUNC | 1
    return row.args[2 if shape.name == "openat2" else shape.flags]
