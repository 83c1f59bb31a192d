"""Block requests: their sizes, order, times in queue and device, and the kinds of writes.

The flags of a request show its kind. Metadata that a filesystem writes synchronously is its journal
or log, or blocks that a call wrote itself; metadata that nothing waits for is written later.
Requests of a device that lies on another appear twice, once on each.
"""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

import duckdb
import numpy as np

from spoolscope.analysis.latency import QUANTILES, Curve, curve, supported
from spoolscope.analysis.services import LOOP_MAJOR
from spoolscope.traces.calls import having, of_kind

DATA, AWAITED, LATER = "data", "metadata_awaited", "metadata_later"
LABELS = {
    "read": "read data",
    "read_metadata": "read metadata",
    DATA: "write data",
    AWAITED: "write metadata, awaited",
    LATER: "write metadata, later",
    "flush_asked": "flush asked for",
    "flush": "cache flush",
    "discard": "discard",
    "other": "other",
}
WRITES = (DATA, AWAITED, LATER)
LEAST_CURVE = 100

_OPENS = having("family", "open")
_REQUESTS = f"""
CREATE OR REPLACE TEMP TABLE requests AS
SELECT dev, parent_dev, bytes, queue_ns, device_ns, sync, fua, preflush, error, held_back,
    CASE WHEN op = 'read' THEN CASE WHEN meta THEN 'read_metadata' ELSE 'read' END
        WHEN op = 'flush' THEN 'flush'
        WHEN op = 'discard' THEN 'discard'
        WHEN op != 'write' THEN 'other'
        WHEN bytes = 0 THEN 'flush_asked'
        WHEN NOT meta THEN '{DATA}'
        WHEN sync THEN '{AWAITED}' ELSE '{LATER}' END AS kind,
    bytes > 0 AND sector = lag(sector + bytes // 512)
        OVER (PARTITION BY dev, parent_dev, op ORDER BY ts_ns) AS follows
FROM block_ios
"""
_QUANTILES = ", ".join(
    f"quantile_disc({column}, {q})" for column in ("queue_ns", "device_ns") for q in (0.5, 0.99)
)
_KINDS = f"""
SELECT dev, parent_dev, kind, count(*), CAST(sum(bytes) AS BIGINT),
    count(*) FILTER (follows), count(*) FILTER (sync), count(*) FILTER (fua),
    count(*) FILTER (preflush), count(*) FILTER (error != 0), count(*) FILTER (held_back),
    CAST(sum(queue_ns) AS BIGINT), CAST(sum(device_ns) AS BIGINT), {_QUANTILES},
    max(queue_ns + device_ns)
FROM requests GROUP BY ALL
"""
# A sendfile or splice has the device of its source, if that is on a spool; then it wrote to the
# spool if its target was opened there. Else it is recorded because of its target.
_CALLS = f"""
WITH copies AS (
    SELECT pid, fd2 AS fd, ts_ns, ret FROM syscalls
    WHERE ret > 0 AND dev IS NOT NULL AND syscall IN {of_kind("sendfile", "splice")}
), targets AS (
    SELECT pid, CAST(CASE WHEN syscall IN {_OPENS} THEN ret ELSE fd END AS INTEGER) AS fd, ts_ns,
        syscall IN {_OPENS} AS opens
    FROM syscalls WHERE errno = 0 AND syscall IN {(*_OPENS, "close")}
        AND EXISTS (SELECT 1 FROM copies)
), wrote AS (
    SELECT ret FROM syscalls WHERE ret > 0 AND (syscall IN {of_kind("write", "copy_range")}
        OR dev IS NULL AND syscall IN {of_kind("sendfile", "splice")})
    UNION ALL SELECT ret FROM uring_ops
    WHERE ret > 0 AND starts_with(op, 'write')
    UNION ALL SELECT c.ret FROM copies c
    ASOF JOIN targets t ON t.pid = c.pid AND t.fd = c.fd AND t.ts_ns <= c.ts_ns WHERE t.opens
)
SELECT CAST(coalesce(sum(ret), 0) AS BIGINT) FROM wrote
"""
# A request with PREFLUSH is inserted again after the cache flush, which its time shows. The letter
# F stands before that of the operation.
_WHAT = "CASE WHEN op = 'write' AND rwbs LIKE 'F%' THEN 'write after a flush' ELSE op END"
# A stage that was not recorded takes no time: the next begins where the one before ended.
_STAGES = f"""
CREATE OR REPLACE TEMP TABLE stage_times AS
SELECT dev, what, merged, requeued, c_ns AS all_ns, g AS made_ns, i - g AS inserted_ns,
    d - i AS issued_ns, c_ns - d AS device_ns
FROM (
    SELECT *, greatest(coalesce(d_ns, i), i) AS d FROM (
        SELECT *, greatest(coalesce(i_ns, g), g) AS i FROM (
            SELECT *, coalesce(g_ns, 0) AS g, {_WHAT} AS what FROM block_stages
            WHERE bios > 0 AND c_ns IS NOT NULL
        )
    )
)
"""
PARTS = {
    "made_ns": "Q to G: until a request was had",
    "inserted_ns": "G to I: in the plug, or until the cache was flushed",
    "issued_ns": "I to D: in the scheduler's queue",
    "device_ns": "D to C: at the device",
}


@dataclass(frozen=True)
class Requests:
    """Requests of one kind on one device; times in ns.

    Attributes:
        dev: The device, major << 20 | minor; ``for_dev`` is the device on top of it, if known.
        kind: One of ``LABELS``.
        follows: Requests whose first sector follows the end of the previous one of that direction.
        queue_p50_ns: Quantiles; None if there are too few requests for them.
    """

    dev: int
    for_dev: int | None
    kind: str
    n: int
    bytes: int
    follows: int
    sync: int
    fua: int
    preflush: int
    errors: int
    held_back: int
    queue_ns: int
    device_ns: int
    queue_p50_ns: int | None
    queue_p99_ns: int | None
    device_p50_ns: int | None
    device_p99_ns: int | None
    max_ns: int

    @property
    def device(self) -> str:
        """Numbers of the device, and of the device on top of it."""
        on = "" if self.for_dev is None else f" for {numbers(self.for_dev)}"
        return f"{numbers(self.dev)}{on}"

    @property
    def label(self) -> str:
        """The kind in words."""
        return LABELS[self.kind]


@dataclass(frozen=True)
class Stages:
    """Requests of one kind on one device by blktrace's stages; times in ns.

    Attributes:
        what: read, write, write after a flush (of the cache, which it asked for), discard ...
        n: Complete requests whose Q event was recorded; ``unseen`` is the number of the others.
        merged: Bios and requests that were merged into them.
        total_ns: Q to C, summed; ``parts`` of it by ``PARTS`` add up to it exactly.
        p50_ns: Quantiles of Q to C, and of each part; None if there are too few.
    """

    dev: int
    what: str
    n: int
    unseen: int
    merged: int
    requeued: int
    total_ns: int
    p50_ns: int | None
    p99_ns: int | None
    max_ns: int
    parts: dict[str, int]
    part_p50_ns: dict[str, int | None]

    @property
    def device(self) -> str:
        """Numbers of the device."""
        return numbers(self.dev)


@dataclass(frozen=True)
class BlockReport:
    """The contents of the block tables of a trace, in sums.

    Attributes:
        requests: Sums by device and kind; devices on top come first.
        curves: Distributions of queue and device time together, by device and kind.
        call_bytes: Bytes that calls wrote, and operations of io_uring.
        unlike: Why these are not what filesystems wrote from, in words; "" if they are.
        stages: Sums by stage, for recordings with --blktrace.
    """

    requests: list[Requests] = field(default_factory=list)
    curves: dict[str, list[Curve]] = field(default_factory=dict)
    call_bytes: int = 0
    unlike: str = ""
    stages: list[Stages] = field(default_factory=list)

    @property
    def top(self) -> list[Requests]:
        """Requests as filesystems made them, that is on the topmost recorded devices."""
        devices = {one.dev for one in self.requests}
        return [one for one in self.requests if one.for_dev not in devices]

    @property
    def written_bytes(self) -> dict[str, int]:
        """Bytes that filesystems wrote, by kind."""
        found = dict.fromkeys(WRITES, 0)
        for one in self.top:
            if one.kind in found:
                found[one.kind] += one.bytes
        return found

    @property
    def amplification(self) -> float | None:
        """Bytes that filesystems wrote, by bytes that calls wrote; None if it cannot be said."""
        return self.by_calls(sum(self.written_bytes.values()))

    def by_calls(self, n_bytes: int) -> float | None:
        """Return bytes by bytes that calls wrote; None if these differ, or there are none."""
        return n_bytes / self.call_bytes if self.call_bytes and not self.unlike else None


def numbers(dev: int) -> str:
    """Return a device as major:minor."""
    return f"{dev >> 20}:{dev & 0xFFFFF}"


def study_block_io(con: duckdb.DuckDBPyConnection, meta: Mapping[str, Any]) -> BlockReport:
    """Study the block tables of a trace; empty if none was recorded.

    Args:
        con: The connection.
        meta: meta.json of the trace.
    """
    con.execute(_REQUESTS)
    found = [_requests(*row) for row in con.execute(_KINDS).fetchall()]
    order = list(LABELS)
    devices = {one.dev for one in found}
    found.sort(key=lambda one: (one.for_dev in devices, one.device, order.index(one.kind)))
    (call_bytes,) = con.execute(_CALLS).fetchone() or (0,)
    stages = _stages(con)
    curves: dict[str, list[Curve]] = {}
    for one in found:
        if one.n >= LEAST_CURVE:
            curves.setdefault(one.device, []).append(_curve(con, one))
    con.execute("DROP TABLE requests")
    report = BlockReport(found, curves, int(call_bytes), stages=stages)
    return replace(report, unlike=_unlike(report, meta))


_CHOOSING = ("pids", "units", "cgroups", "exes", "comms")


def _unlike(report: BlockReport, meta: Mapping[str, Any]) -> str:
    """Return why the recorded calls are not those whose data the filesystems wrote, or ""."""
    spools = meta.get("spools") or []
    asked = meta.get("filter") or {}
    cases = {
        "only a directory of a filesystem was recorded": any(one.get("part") for one in spools),
        "only some programs were recorded": any(asked.get(key) for key in _CHOOSING),
        "calls were left out, to keep the recorder's cost down": bool(meta.get("shed")),
        "what io_submit wrote is not in the trace": bool(meta.get("aio_calls")),
        "another part of a disk was written, too": _other_parts(
            report, {int(one["dev"]) for one in spools if one.get("dev")}
        ),
    }
    return next((words for words, holds in cases.items() if holds), "")


def _other_parts(report: BlockReport, spools: set[int]) -> bool:
    """Return True if on the disk of a spool another partition or volume was written, too.

    Of a large request that was split the partition is not known: the only one of its disk, if there
    is one. The number of a filesystem over several disks, major 0, names none of them.
    """
    parts, written = defaultdict(set), defaultdict(set)
    for one in report.top:  # an empty one, for a flush, may be of the volume on a partition
        if one.bytes and one.for_dev is not None and one.for_dev >> 20 != LOOP_MAJOR:
            parts[one.dev].add(one.for_dev)
    for one in report.top:
        if one.kind in WRITES and one.bytes:
            only = next(iter(parts[one.dev])) if len(parts[one.dev]) == 1 else one.dev
            written[one.dev].add(only if one.for_dev is None else one.for_dev)
    named = all(dev >> 20 for dev in spools)
    return any(len(on) > 1 and not (named and on <= spools) for on in written.values())


def _requests(dev: int, for_dev: int | None, kind: str, n: int, *rest: int) -> Requests:
    *numbers_, q50, q99, d50, d99, longest = rest
    known = [
        value if supported(n, q) else None
        for value, q in ((q50, 0.5), (q99, 0.99), (d50, 0.5), (d99, 0.99))
    ]
    values = dict(
        zip((one.name for one in fields(Requests)[4:]), (*numbers_, *known, longest), strict=True)
    )
    return Requests(dev=dev, for_dev=for_dev, kind=kind, n=n, **values)  # type: ignore[arg-type]


def _curve(con: duckdb.DuckDBPyConnection, of: Requests) -> Curve:
    times = con.execute(
        "SELECT queue_ns + device_ns AS ns FROM requests "
        "WHERE dev = ? AND parent_dev IS NOT DISTINCT FROM ? AND kind = ?",
        [of.dev, of.for_dev, of.kind],
    ).fetchnumpy()["ns"]
    return curve(of.label, np.asarray(times))


def _stages(con: duckdb.DuckDBPyConnection) -> list[Stages]:
    con.execute(_STAGES)
    columns = ["all_ns", *PARTS]
    sums = ", ".join(f"CAST(sum({column}) AS BIGINT)" for column in columns)
    quantiles = ", ".join(f"quantile_disc({c}, [0.5, 0.99])" for c in columns)
    rows = con.execute(
        f"SELECT dev, what, count(*), CAST(sum(merged) AS BIGINT), CAST(sum(requeued) AS BIGINT), "
        f"max(all_ns), {sums}, {quantiles} FROM stage_times GROUP BY ALL ORDER BY dev, what"
    ).fetchall()
    unseen = {
        (dev, what): n
        for dev, what, n in con.execute(
            f"SELECT dev, {_WHAT}, count(*) FROM block_stages "
            "WHERE bios = 0 OR c_ns IS NULL GROUP BY ALL"
        ).fetchall()
    }
    con.execute("DROP TABLE stage_times")
    return [_of_stages(unseen.get(row[:2], 0), *row) for row in rows]


def _of_stages(
    unseen: int, dev: int, what: str, n: int, merged: int, requeued: int, max_ns: int, *rest: object
) -> Stages:
    width = len(PARTS) + 1
    sums = [int(str(value)) for value in rest[:width]]
    p50, p99 = (
        [pair[at] if supported(n, q) else None for pair in rest[width:] if isinstance(pair, list)]
        for at, q in enumerate((QUANTILES[0], QUANTILES[2]))
    )
    return Stages(
        dev=dev,
        what=what,
        n=n,
        unseen=unseen,
        merged=merged,
        requeued=requeued,
        total_ns=sums[0],
        p50_ns=p50[0],
        p99_ns=p99[0],
        max_ns=max_ns,
        parts=dict(zip(PARTS, sums[1:], strict=True)),
        part_p50_ns=dict(zip(PARTS, p50[1:], strict=True)),
    )
