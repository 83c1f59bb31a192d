"""Events of a block trace -> requests with the times of their stages.

The events carry no identity, only a disk and a range of sectors, so a request is followed by its
range. The rules:

* Q queues a bio; G makes a request of it, or of the part that begins at the sector of G: the rest
  of a split (X) stays queued as a bio with the same Q. If several bios fit, one of the thread of G
  is taken.
* M appends a queued bio to the request that ends at the sector of the event, F puts one before the
  request that begins at its end. M may also append another request, which then no longer exists.
  The earliest Q, G and I count.
* I and D belong to the request with their range. If no request is known at a range, it began
  before the trace, or is the driver's own: the cache flush (FN) that a flush request waits for.
* R takes the D back. C completes from the front; the request is complete with its last byte.
* A request with PREFLUSH or FUA that the kernel takes apart into flush, data and flush has a
  second C, of 0 bytes, at its end. One without data has only that C. If several such requests may
  be meant, the earliest is taken: no event identifies it.
* U ends the plug that the thread's P began; it unplugs the requests that the thread made since
  then, and the one it made just before, unless they are issued.
* A, before Q, names the source of the bio: partition, device mapper, md.
* A bio that completes without a request (device mapper, zram) is a row with Q and C only.
"""

import struct
from collections import defaultdict, deque
from collections.abc import Callable, Iterable

from spoolscope.tracers.blktrace import records
from spoolscope.tracers.blktrace.records import Event, letters

SECTOR = 512
_REMAP = struct.Struct(">IIQ")
NEVER = -1


class Request:
    """A request, or a bio that has none yet; times are CLOCK_MONOTONIC or NEVER.

    Attributes:
        sector: First sector.
        length: Bytes.
        at: First sector that is not complete.
        left: Bytes not complete.
        bios: Bios whose Q was seen.
        merged: Bios and requests merged into it.
        end: The second C of a flush sequence.
    """

    __slots__ = (
        "at", "bios", "category", "complete", "dev", "end", "error", "from_dev", "from_sector",
        "getrq", "insert", "issue", "left", "length", "letters", "merged", "queue", "requeued",
        "sector", "tid", "unplug",
    )  # fmt: skip

    def __init__(self, event: Event) -> None:
        self.dev, self.tid, self.category = event.dev, event.tid, event.category
        self.letters = letters(event.category, event.length)
        self.sector = self.at = event.sector
        self.length = self.left = event.length
        self.queue = self.getrq = self.insert = self.unplug = self.issue = NEVER
        self.complete = self.end = self.from_sector = NEVER
        self.bios = self.merged = self.requeued = self.error = self.from_dev = 0

    @property
    def next_sector(self) -> int:
        """Sector after the last one."""
        return self.at + self.left // SECTOR

    @property
    def begin(self) -> int:
        """Time of the first stage that was seen."""
        stages = (self.queue, self.getrq, self.insert, self.issue, self.complete, self.end)
        return next(time for time in stages if time != NEVER)

    @property
    def is_flush(self) -> bool:
        """Return whether the kernel may take it apart into flush, data and flush."""
        return bool(self.category & (records.FLUSH | records.FUA))

    def cover(self, sector: int, length: int) -> None:
        """Take over a range."""
        self.sector = self.at = sector
        self.length = self.left = length


Held = dict[int, list[Request]]


def _pop(held: Held, key: int, request: Request) -> None:
    row = held[key]
    row.remove(request)
    if not row:
        del held[key]


class Disk:
    """The requests of one disk; whatever is finished goes to ``emit``."""

    def __init__(self, emit: Callable[[Request], None]) -> None:
        self._emit = emit
        self._bios: Held = defaultdict(list)  # waiting, by first sector
        self._starts: Held = defaultdict(list)  # requests by where they begin
        self._ends: Held = defaultdict(list)  # not yet issued ones by where they end
        self._sequences: dict[int, Request] = {}  # data complete, second C to come
        self._plugs: dict[int, list[Request]] = {}
        self._newest: dict[int, Request] = {}  # by thread
        self._flushes: deque[Request] = deque()  # the driver's own, issued
        self._remaps: dict[tuple[int, int], tuple[int, int]] = {}
        self._handlers: dict[int, Callable[[Event], None]] = {
            records.QUEUE: self._queue,
            records.GETRQ: self._getrq,
            records.BACKMERGE: self._backmerge,
            records.FRONTMERGE: self._frontmerge,
            records.INSERT: self._insert,
            records.ISSUE: self._issue,
            records.REQUEUE: self._requeue,
            records.COMPLETE: self._complete,
            records.PLUG: self._plug,
            records.UNPLUG_IO: self._unplug,
            records.UNPLUG_TIMER: self._unplug,
            records.REMAP: self._remap,
        }

    def take(self, event: Event) -> None:
        """Follow one event; events without a handler add nothing to what G states."""
        if handler := self._handlers.get(event.action):
            handler(event)

    def finish(self) -> None:
        """Emit the requests that were not complete when the trace ended."""
        for held in (self._starts, self._bios):
            for row in held.values():
                for request in row:
                    self._emit(request)
        for request in (*self._flushes, *self._sequences.values()):
            self._emit(request)

    def _remap(self, event: Event) -> None:
        from_dev, _, from_sector = _REMAP.unpack(event.extra)
        self._remaps[event.tid, event.sector] = from_dev, from_sector

    def _queue(self, event: Event) -> None:
        bio = Request(event)
        bio.queue, bio.bios = event.time_ns, 1
        if (key := (event.tid, event.sector)) in self._remaps:
            bio.from_dev, bio.from_sector = self._remaps.pop(key)
        self._bios[event.sector].append(bio)

    def _bio(self, event: Event) -> Request | None:
        """Take the waiting bio that an event is about; the rest of a longer one stays."""
        empty = not event.length
        waiting = [b for b in self._bios.get(event.sector, ()) if (not b.left) == empty]
        if not waiting:
            return None
        bio = min(waiting, key=lambda b: (b.tid != event.tid, b.left != event.length))
        _pop(self._bios, event.sector, bio)
        if bio.left > event.length:
            rest = Request(event)
            rest.queue, rest.tid = bio.queue, bio.tid
            rest.letters, rest.category = bio.letters, bio.category
            rest.from_dev, rest.from_sector, rest.bios = bio.from_dev, bio.from_sector, 1
            if rest.from_dev:
                rest.from_sector += event.length // SECTOR
            rest.cover(event.sector + event.length // SECTOR, bio.left - event.length)
            self._bios[rest.sector].append(rest)
        return bio

    def _getrq(self, event: Event) -> None:
        request = self._bio(event) or Request(event)
        request.cover(event.sector, event.length)
        request.getrq = event.time_ns
        if earlier := self._sequences.pop(event.sector, None):
            self._emit(earlier)
        self._place(request)
        self._newest[event.tid] = request
        if event.tid in self._plugs and not request.is_flush:
            self._plugs[event.tid].append(request)

    def _place(self, request: Request) -> None:
        self._starts[request.at].append(request)
        if request.issue == NEVER and request.left:
            self._ends[request.next_sector].append(request)

    def _displace(self, request: Request) -> None:
        _pop(self._starts, request.at, request)
        if request.issue == NEVER and request.left:
            _pop(self._ends, request.next_sector, request)

    def _backmerge(self, event: Event) -> None:
        added = self._bio(event) or self._find(event, issued=False, exact=True)
        before = [r for r in self._ends.get(event.sector, ()) if r is not added]
        if not before:
            return  # of a request from before the trace: its D will have its length
        request = before[-1]
        if added:
            if added.getrq != NEVER:
                self._displace(added)
            self._absorb(request, added)
        self._displace(request)
        request.cover(request.sector, request.length + event.length)
        self._place(request)

    def _frontmerge(self, event: Event) -> None:
        added = self._bio(event)
        after = [
            r
            for r in self._starts.get(event.sector + event.length // SECTOR, ())
            if r.issue == NEVER and r.left
        ]
        if not after:
            return
        request = after[-1]
        if added:
            self._absorb(request, added)
        self._displace(request)
        request.cover(event.sector, request.length + event.length)
        self._place(request)

    @staticmethod
    def _absorb(request: Request, added: Request) -> None:
        for stage in ("queue", "getrq", "insert"):
            times = [t for t in (getattr(request, stage), getattr(added, stage)) if t != NEVER]
            setattr(request, stage, min(times, default=NEVER))
        request.bios += added.bios
        request.merged += added.merged + 1

    def _find(self, event: Event, *, issued: bool, exact: bool = False) -> Request | None:
        found = [r for r in self._starts.get(event.sector, ()) if (r.issue != NEVER) == issued]
        same = [r for r in found if r.left == event.length]
        return same[0] if same else found[0] if found and event.length and not exact else None

    def _insert(self, event: Event) -> None:
        self._known(event).insert = event.time_ns

    def _known(self, event: Event) -> Request:
        """Return the request that is not issued yet, with the range of the event."""
        request = self._find(event, issued=False)
        if request is None:
            request = Request(event)
            self._place(request)
        elif request.left != event.length:
            self._displace(request)
            request.cover(event.sector, event.length)
            self._place(request)
        return request

    def _issue(self, event: Event) -> None:
        if _is_cache_flush(event):
            flush = Request(event)
            flush.issue = event.time_ns
            self._flushes.append(flush)
            return
        request = self._known(event)
        self._displace(request)
        request.issue = event.time_ns
        self._place(request)

    def _requeue(self, event: Event) -> None:
        if _is_cache_flush(event):
            if self._flushes:
                self._flushes.pop()
        elif request := self._find(event, issued=True):
            self._displace(request)
            request.issue, request.requeued = NEVER, request.requeued + 1
            self._place(request)

    def _complete(self, event: Event) -> None:
        if _is_cache_flush(event):
            request = self._flushes.popleft() if self._flushes else Request(event)
        elif not event.length and event.sector in self._sequences:
            request = self._sequences.pop(event.sector)
            request.end = event.time_ns
            self._emit(request)
            return
        elif found := self._find(event, issued=True) or self._unissued_empty(event):
            request = found
            self._displace(request)
            if event.length < request.left:
                request.at += event.length // SECTOR
                request.left -= event.length
                self._place(request)
                return
        else:
            request = self._bio(event) or Request(event)
        request.complete, request.error = event.time_ns, event.error
        if request.is_flush and request.length and request.getrq != NEVER:
            self._sequences[request.sector] = request
        else:
            self._emit(request)

    def _unissued_empty(self, event: Event) -> Request | None:
        # A flush request without data is never issued itself.
        return None if event.length else self._find(event, issued=False)

    def _plug(self, event: Event) -> None:
        newest = self._newest.get(event.tid)
        self._plugs[event.tid] = [newest] if newest and newest.issue == NEVER else []

    def _unplug(self, event: Event) -> None:
        for request in self._plugs.pop(event.tid, ()):
            if request.issue == NEVER:
                request.unplug = event.time_ns


def _is_cache_flush(event: Event) -> bool:
    """Return whether it is the driver's own flush, REQ_OP_FLUSH, not a write that asks for one."""
    kind = event.category & (records.FLUSH | records.WRITE | records.DISCARD)
    return kind == records.FLUSH and not event.length


def join(events: Iterable[Event], emit: Callable[[Request], None]) -> None:
    """Give every request of a block trace to ``emit``, complete or not.

    Args:
        events: In the order of their times.
        emit: Called once for each request, in the order in which they ended.
    """
    disks: dict[int, Disk] = {}
    for event in events:
        disk = disks.get(event.dev)
        if disk is None:
            disk = disks[event.dev] = Disk(emit)
        disk.take(event)
    for disk in disks.values():
        disk.finish()
