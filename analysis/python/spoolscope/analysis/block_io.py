"""Block requests: their sizes, order, times in queue and device, and the kinds of writes.

The flags of a request show its kind. Metadata that a filesystem writes synchronously is its journal
or log, or blocks that a call wrote itself; metadata that nothing waits for is written later.
Requests of a device that lies on another appear twice, once on each.
"""

from dataclasses import dataclass, field, fields

import duckdb
import numpy as np

from spoolscope.analysis.latency import QUANTILES, Curve, curve, supported
from spoolscope.traces.calls import of_kind

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
_CALLS = f"""
SELECT CAST(coalesce(sum(ret), 0) AS BIGINT) FROM syscalls
WHERE ret > 0 AND syscall IN {of_kind("write", "copy_range")}
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
        call_bytes: Bytes that calls wrote.
        stages: Sums by stage, for recordings with --blktrace.
    """

    requests: list[Requests] = field(default_factory=list)
    curves: dict[str, list[Curve]] = field(default_factory=dict)
    call_bytes: int = 0
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
        """Bytes that filesystems wrote, by bytes that calls wrote; None without any of these."""
        return sum(self.written_bytes.values()) / self.call_bytes if self.call_bytes else None


def numbers(dev: int) -> str:
    """Return a device as major:minor."""
    return f"{dev >> 20}:{dev & 0xFFFFF}"


def study_block_io(con: duckdb.DuckDBPyConnection) -> BlockReport:
    """Study the block tables of a trace; empty if none was recorded."""
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
    return BlockReport(found, curves, int(call_bytes), stages)


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
