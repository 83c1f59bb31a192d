"""Analysis of a trace of disks alone, without calls, as import makes it of block traces."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import duckdb

from spoolscope.analysis.latency import supported
from spoolscope.analysis.selection import WHOLE, Selection, select
from spoolscope.analysis.wording import count, duration, percent, size
from spoolscope.traces.trace import Trace

LISTED = 12
NOT_IN_A_DISK_TRACE = (
    "Which system call, mailbox or file a request was made for, and what waited for it: there are "
    "no calls. Journal commits, locks and run queues: nothing here tells of them."
)

# In issue order; a request follows another if it begins at the sector where that one ends.
_KINDS = """
WITH ordered AS (
    SELECT *, lag(sector + bytes // 512) OVER (
        PARTITION BY dev, op ORDER BY ts_ns + queue_ns, sector) AS follows
    FROM block_ios
)
SELECT dev, op, count(*), CAST(sum(bytes) AS BIGINT), CAST(median(bytes) AS BIGINT), max(bytes),
    coalesce(avg(CAST(sector = follows AS INTEGER)), 0),
    avg(queue_ns), median(queue_ns), quantile_cont(queue_ns, 0.99), max(queue_ns),
    avg(device_ns), median(device_ns), quantile_cont(device_ns, 0.99), max(device_ns),
    CAST(sum(fua::INTEGER) AS BIGINT), CAST(sum(preflush::INTEGER) AS BIGINT),
    CAST(sum((error != 0)::INTEGER) AS BIGINT)
FROM ordered GROUP BY dev, op ORDER BY sum(device_ns) DESC, dev, op
"""

# A disk is busy while at least one request is issued: overlapping intervals are merged.
_BUSY = """
WITH issued AS (
    SELECT dev, greatest(ts_ns + queue_ns, {from_ns}) AS from_ns,
        least(ts_ns + queue_ns + device_ns, {to_ns}) AS to_ns
    FROM block_ios WHERE ts_ns + queue_ns < {to_ns}
), marked AS (
    SELECT *, from_ns > coalesce(max(to_ns) OVER (PARTITION BY dev ORDER BY from_ns, to_ns
        ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), -1) AS begins
    FROM issued
), numbered AS (
    SELECT *, sum(begins::INTEGER) OVER (PARTITION BY dev ORDER BY from_ns, to_ns) AS stretch
    FROM marked
), stretches AS (
    SELECT dev, max(to_ns) - min(from_ns) AS ns FROM numbered GROUP BY dev, stretch
)
SELECT dev, CAST(sum(ns) AS BIGINT) FROM stretches GROUP BY dev
"""

_SUBMITTERS = f"""
SELECT comm, count(*), CAST(coalesce(sum(bytes) FILTER (op = 'write'), 0) AS BIGINT),
    CAST(coalesce(sum(bytes) FILTER (op = 'read'), 0) AS BIGINT),
    count(*) FILTER (preflush OR fua), CAST(sum(device_ns) AS BIGINT)
FROM block_ios GROUP BY comm ORDER BY sum(device_ns) DESC, comm LIMIT {LISTED}
"""

_EVER = 2**63 - 1

_UNFINISHED = "SELECT count(*) FROM block_stages WHERE c_ns IS NULL"


@dataclass(frozen=True)
class Times:
    """Times of requests, ns; the 99th percentile is None if there are too few for it."""

    mean: float
    median: float
    p99: float | None
    max: int


@dataclass(frozen=True)
class Kind:
    """Requests of one kind to one disk.

    Attributes:
        disk: Device as "major:minor".
        op: read, write, flush, discard, zeroes or other.
        n: Number; bytes in sum; median_bytes and max_bytes of one request.
        sequential: Share of the requests, without the first, that begin where the one before ended.
        fua: Number that must be on the medium when they complete (FUA).
        preflush: Number that ask for a flush of the disk's cache first.
        errors: Number that failed.
        queue: Time until they were issued; device: time from issue to completion.
    """

    disk: str
    op: str
    n: int
    bytes: int
    median_bytes: int
    max_bytes: int
    sequential: float
    fua: int
    preflush: int
    errors: int
    queue: Times
    device: Times

    @property
    def enough(self) -> bool:
        """True if they are enough for a share or a median of them to mean something."""
        return supported(self.n, 0.5)


@dataclass(frozen=True)
class Submitter:
    """Requests of threads of one name: number, bytes, how many flush, and their device time."""

    comm: str
    n: int
    written_bytes: int
    read_bytes: int
    flushing: int
    device_ns: int


@dataclass(frozen=True)
class DiskTrace:
    """The analysis of a trace of disks alone.

    Attributes:
        duration_ns: Length of the trace.
        kinds: Kinds of requests, the largest time at the device first.
        busy_ns: By disk, how long a request was at the device in the part that is shown.
        submitters: Sums by name of the thread that queued a request, in the same order.
        unfinished: Requests that were not seen to complete.
        imported: Facts that the import stored.
    """

    duration_ns: int
    kinds: list[Kind]
    busy_ns: Mapping[str, int]
    submitters: list[Submitter]
    unfinished: int
    imported: Mapping[str, Any]

    @property
    def n(self) -> int:
        """Number of requests that were seen from issue to completion."""
        return sum(kind.n for kind in self.kinds)

    @property
    def headline(self) -> str:
        """A sentence on the requests that took the disks most time."""
        if not self.kinds:
            return "No request was seen from its issue to its completion."
        top, total = self.kinds[0], sum(k.n * k.device.mean for k in self.kinds)
        share = percent(top.n * top.device.mean / total if total else 0, 0)
        each = f"{duration(top.device.median)} each (median)"
        large = f", of {size(top.median_bytes)}" if top.median_bytes else ""
        of = f"{count(top.n)} {_plural(top)} of disk {top.disk}"
        return f"{share} of the time of requests at the disks is {of}: {each}{large}."

    @property
    def findings(self) -> list[str]:
        """Sentences on what is unusual."""
        found = []
        for disk, busy_ns in self.busy_ns.items():
            at_disk = sum(k.n * k.device.mean for k in self.kinds if k.disk == disk)
            deep = at_disk / busy_ns if busy_ns else 0
            share = percent(busy_ns / self.duration_ns if self.duration_ns else 0)
            found.append(
                f"Disk {disk} was busy for {share} of the time, with {deep:.1f} requests in it."
            )
        for kind in self.kinds:
            if kind.op in ("read", "write") and kind.enough:
                found.append(
                    f"{percent(kind.sequential, 0)} of the {_plural(kind)} of disk {kind.disk} "
                    f"begin where the one before ended; median {size(kind.median_bytes)}."
                )
            if kind.n and kind.queue.mean > kind.device.mean and kind.op != "flush":
                before, inside = duration(kind.queue.mean), duration(kind.device.mean)
                found.append(
                    f"{_plural(kind).capitalize()} of disk {kind.disk} wait longer to be issued "
                    f"({before}) than at the disk ({inside}); means."
                )
        found += self._of_flushes()
        found += [
            f"Failed: {count(k.errors)} of {count(k.n)} {_plural(k)} of disk {k.disk}."
            for k in self.kinds
            if k.errors
        ]
        if self.unfinished:
            found.append(f"Not seen to complete: {count(self.unfinished)}.")
        return found

    def _of_flushes(self) -> list[str]:
        asked = sum(kind.preflush + kind.fua for kind in self.kinds)
        flushes = sum(kind.n for kind in self.kinds if kind.op == "flush")
        if not asked and not flushes:
            unread = int(self.imported.get("not_understood", 0))
            also = f"; {count(unread)} lines could not be read" if unread else ""
            return [f"No cache flush was {'seen' if unread else 'asked for'}{also}."]
        ns = sum(kind.n * kind.device.mean for kind in self.kinds if kind.op == "flush")
        return [
            f"Cache flushes: {count(flushes)}, {duration(ns)} in sum; requests that ask for one "
            f"before them, or to be on the medium: {count(asked)}."
        ]

    def to_json(self) -> dict[str, Any]:
        """Return the object that ``explain --json`` prints of such a trace."""
        return {
            "kind": "disks",
            "calls": 0,
            "requests": self.n,
            "headline": self.headline,
            "findings": self.findings,
            "not_known": NOT_IN_A_DISK_TRACE,
            **asdict(self),
        }


def is_disk_trace(trace: Trace) -> bool:
    """Return True if a trace has requests and no call."""
    counts = trace.meta["counts"]
    return not counts.get("syscalls") and bool(counts.get("block_stages", 0))


def study_disks(trace: Trace, selection: Selection = WHOLE) -> DiskTrace:
    """Sum up the requests of a trace, or of a part of its time.

    Raises:
        SpoolscopeError: the selection is of calls, or begins after the end of the trace.
    """
    with trace.connect() as con:
        select(con, trace, selection)
        from_ns, to_ns = (0, _EVER) if selection.is_whole else selection.span_ns(trace.meta)
        busy = con.execute(_BUSY.format(from_ns=from_ns, to_ns=to_ns)).fetchall()
        return DiskTrace(
            duration_ns=selection.lasted_ns(int(trace.meta["duration_ns"])),
            kinds=[_kind(row) for row in con.execute(_KINDS).fetchall()],
            busy_ns={_disk(dev): ns for dev, ns in busy},
            submitters=[Submitter(*row) for row in con.execute(_SUBMITTERS).fetchall()],
            unfinished=_one(con, _UNFINISHED),
            imported=trace.meta.get("imported") or {},
        )


def _one(con: duckdb.DuckDBPyConnection, query: str) -> int:
    (found,) = con.execute(query).fetchone() or (0,)
    return int(found)


def _kind(row: tuple[Any, ...]) -> Kind:
    dev, op, n, total, median, largest, sequential, *rest = row
    queue, device = (
        Times(mean, middle, p99 if supported(n, 0.99) else None, longest)
        for mean, middle, p99, longest in (rest[:4], rest[4:8])
    )
    fua, preflush, errors = rest[8:]
    return Kind(
        _disk(dev), op, n, total, median, largest, sequential, fua, preflush, errors, queue, device
    )


def _disk(dev: int) -> str:
    return f"{dev >> 20}:{dev & 0xFFFFF}"


def _plural(kind: Kind) -> str:
    return {"flush": "flushes", "other": "other requests", "zeroes": "writes of zeroes"}.get(
        kind.op, f"{kind.op}s"
    )
