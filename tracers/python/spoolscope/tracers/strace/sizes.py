"""Effects of calls on data on sizes and positions."""

from collections.abc import Callable
from typing import NamedTuple

from spoolscope.tracers.effects import Row
from spoolscope.tracers.strace.objects import Object, Objects, Quantity, known
from spoolscope.tracers.strace.words import signed
from spoolscope.traces.abi import FALLOC_FL_KEEP_SIZE, SEEK_CUR, SEEK_END
from spoolscope.traces.calls import CALLS, FICLONE, FICLONERANGE, of_kind

CLONES = (FICLONE, FICLONERANGE)


class Place(NamedTuple):
    """A call on an open file: the object, and the position before the call.

    Attributes:
        asked: Bytes asked for.
        certain: No other call changed the size during it.
    """

    objects: Objects
    row: Row
    found: Object
    appends: bool
    position: Quantity | None
    asked: int
    certain: bool

    def tell(self, size: int) -> None:
        """Set the size that the call showed, unless it changed during the call."""
        if self.certain:
            self.objects.saw_size(self.found, size)


Moved = Quantity | None
"""Position of an open file after a call; None if unknown."""


def moved(name: str, place: Place) -> Moved:
    """Apply a call's effect on the object's size, and return the position after it."""
    effect = _EFFECTS.get(name)
    return effect(place) if effect and place.row.ret >= 0 else place.position


def _read(place: Place) -> Moved:
    if place.position is None:
        return None
    after = place.position + place.row.ret
    if 0 < place.row.ret < place.asked:  # it reached the end of the file
        if not after.unknown:
            place.tell(after.plus)
        elif place.certain and (size := place.objects.unknowns.value(place.found.size)) >= 0:
            place.objects.unknowns.set(after, size)
    return after


def _pread(place: Place) -> Moved:
    if 0 < place.row.ret < place.asked:
        place.tell(place.row.args[3] + place.row.ret)
    return place.position


def _write(place: Place) -> Moved:
    found, unknowns = place.found, place.objects.unknowns
    if place.appends:
        found.size += place.row.ret
        return found.size
    if place.position is None:
        found.size = unknowns.new()
        return None
    after = place.position + place.row.ret
    found.size = unknowns.larger(found.size, after)
    return after


def _pwrite(place: Place) -> Moved:
    found = place.found
    if place.appends:
        found.size += place.row.ret
    else:
        after = known(place.row.args[3] + place.row.ret)
        found.size = place.objects.unknowns.larger(found.size, after)
    return place.position


def _seek(place: Place) -> Moved:
    offset = signed(place.row.args[1])
    if place.row.args[2] == SEEK_END:
        place.tell(place.row.ret - offset)
    elif place.row.args[2] == SEEK_CUR and place.position is not None:
        place.objects.unknowns.set(place.position, place.row.ret - offset)
    return known(place.row.ret)


def _truncated(place: Place) -> Moved:
    place.found.size = known(place.row.args[1])
    return place.position


def _allocated(place: Place) -> Moved:
    mode, offset, size = place.row.args[1:4]
    if mode == 0:
        end = known(offset + size)
        place.found.size = place.objects.unknowns.larger(place.found.size, end)
    elif not mode & FALLOC_FL_KEEP_SIZE:
        place.found.size = place.objects.unknowns.new()
    return place.position


def _cloned(place: Place) -> Moved:
    if place.row.args[1] in CLONES:
        place.found.size = place.objects.unknowns.new()
    return place.position


def _lost(_place: Place) -> Moved:
    """Make the position unknown: it is not determined whether the call used it or an offset."""
    return None


def _placed(kind: str, *, by_offset: bool) -> tuple[str, ...]:
    """Return the calls of a kind that say where they begin, or those that use the position."""
    return tuple(
        name for name in of_kind(kind) if (CALLS[name].position("offset") is not None) == by_offset
    )


_EFFECTS: dict[str, Callable[[Place], Moved]] = {
    **dict.fromkeys(_placed("read", by_offset=False), _read),
    **dict.fromkeys(_placed("read", by_offset=True), _pread),
    **dict.fromkeys(_placed("write", by_offset=False), _write),
    **dict.fromkeys(_placed("write", by_offset=True), _pwrite),
    **dict.fromkeys(of_kind("seek"), _seek),
    **dict.fromkeys(of_kind("ftruncate"), _truncated),
    **dict.fromkeys(of_kind("fallocate"), _allocated),
    **dict.fromkeys(of_kind("clone"), _cloned),
    **dict.fromkeys(of_kind("copy_range", "sendfile", "splice"), _lost),
}
