"""Busy time of the disks: the time of every request by stage."""

from collections.abc import Iterator
from dataclasses import dataclass

import duckdb
import numpy as np
import pyarrow as pa

from spoolscope.traces.trace import Trace

# A request with PREFLUSH waits in blk-flush.c until the disk's cache is empty before it is issued:
# its queue time is that flush, made for its submitter. After a request with FUA comes a flush if
# the disk has no FUA. A kernel worker inserts the flush request itself, for the whole disk; it is
# attributed to the last request on that disk that was due for one, and to its partition. Of a large
# request that was split the partition is not known, either: it is the only one, if there is one.
_SERVICES = """
CREATE OR REPLACE TEMP TABLE services AS
WITH only_part AS (
    SELECT dev, min(parent_dev) AS part_dev FROM block_ios
    WHERE parent_dev >> 20 != {loop_major} GROUP BY dev HAVING min(parent_dev) = max(parent_dev)
), requests AS (
    SELECT ts_ns, ts_ns + queue_ns AS issue_ns, ts_ns + queue_ns + device_ns AS done_ns, dev,
        coalesce(parent_dev, part_dev, dev) AS disk, pid, tid, comm, seq, op, preflush, fua
    FROM block_ios LEFT JOIN only_part USING (dev)
    WHERE parent_dev IS NULL OR parent_dev >> 20 != {loop_major}
), parts AS (
    SELECT disk, pid, tid, comm, seq,
        CAST(CASE WHEN preflush THEN '{flush}' ELSE '{queue}' END AS {kind}) AS part,
        ts_ns AS from_ns, issue_ns AS to_ns
    FROM requests WHERE op != 'flush'
    UNION ALL SELECT disk, pid, tid, comm, seq, CAST('{device}' AS {kind}), issue_ns, done_ns
    FROM requests WHERE op != 'flush'
), due AS (
    SELECT dev, disk, pid, tid, comm, seq, CASE WHEN preflush THEN ts_ns ELSE done_ns END AS due_ns
    FROM requests WHERE op != 'flush' AND (preflush OR fua)
), emptied AS (
    SELECT coalesce(d.disk, f.disk) AS disk, d.pid, d.tid, d.comm, d.seq,
        CAST('{disk_flush}' AS {kind}) AS part, f.ts_ns AS from_ns, f.done_ns AS to_ns
    FROM (SELECT dev, disk, ts_ns, done_ns FROM requests WHERE op = 'flush') f
    ASOF LEFT JOIN due d ON d.dev = f.dev AND d.due_ns <= f.ts_ns
)
SELECT * FROM (SELECT * FROM parts UNION ALL BY NAME SELECT * FROM emptied) WHERE from_ns < to_ns
"""

QUEUE, DEVICE, FLUSH, DISK_FLUSH = "queue", "device", "flush", "disk_flush"
KINDS = ("read", "write", "flush")
LOOP_MAJOR = 7  # Documentation/admin-guide/devices.txt

Window = tuple[int, int] | None
_COLUMNS = ("ts_ns", "queue_ns", "device_ns", "dev", "op", "pid", "comm", "parent_dev")
_ROW = _DISK, _KIND, _FROM, _TO, _, _, _ = range(7)


def find_services(con: duckdb.DuckDBPyConnection) -> None:
    """Create the table ``services``: one row for each stage of each request.

    ``part`` is queue (waiting to be issued), device (issued), flush (waiting for the disk's
    cache) or disk_flush (the disk empties its cache, for any requests); ``disk`` is the device or
    partition that a filesystem lies on. Requests that a loop device made of others are left out, as
    they are the same requests.
    """
    parts = {"queue": QUEUE, "device": DEVICE, "flush": FLUSH, "disk_flush": DISK_FLUSH}
    kind = f"ENUM ({', '.join(repr(part) for part in parts.values())})"
    con.execute(_SERVICES.format(**parts, kind=kind, loop_major=LOOP_MAJOR))


def same_disk(dev: str, disk: str) -> str:
    """Return the SQL condition that a filesystem (its s_dev) may lie on a disk.

    Filesystems over several disks have an anonymous number, major 0, which names none of them.
    """
    return f"({dev} IS NULL OR {dev} < (1 << 20) OR {dev} = {disk})"


@dataclass(frozen=True)
class Turns:
    """Requests in the order of their completion by the disks, one array for each field.

    Attributes:
        disk: The disk; ``kind`` is a place in ``KINDS``.
        from_ns: Begin of its service: a request in the device is not served before the one ahead of
            it is done, so no two turns on a disk overlap.
        to_ns: End of its service.
        pid: The process that made it; ``comm`` is a place in ``names``.
        looped: True if a loop device made it of another request.
    """

    disk: np.ndarray
    kind: np.ndarray
    from_ns: np.ndarray
    to_ns: np.ndarray
    pid: np.ndarray
    comm: np.ndarray
    looped: np.ndarray
    names: list[str]


def by_kind(turns: Turns) -> Iterator[tuple[tuple[int, str], np.ndarray]]:
    """Yield the service times of requests, ns, by disk and kind (read, write, flush)."""
    ns = turns.to_ns - turns.from_ns
    for disk in np.unique(turns.disk).tolist():
        for code, kind in enumerate(KINDS):
            yield (disk, kind), ns[(turns.disk == disk) & (turns.kind == code)]


def disk_turns(trace: Trace, window: Window = None) -> Iterator[Turns]:
    """Yield reads, writes and flushes, part by part.

    Args:
        trace: The trace.
        window: Only requests that overlap this time, ns since the epoch; None: all.
    """
    done_ns: dict[int, int] = {}
    names: dict[str, int] = {}
    open_ = np.zeros((len(_ROW), 0), np.int64)
    for part in trace.parts("block_ios", _COLUMNS):
        rows, last_ns = _rows(part, names), part["ts_ns"][-1].as_py()
        known = np.concatenate([open_, rows], axis=1)
        # No request of a later part is done before the last request of this part was made.
        done = known[_TO] <= last_ns
        yield _turns(known, done, done_ns, window, list(names))
        open_ = known.take(np.flatnonzero(~done), axis=1)
    yield _turns(open_, np.ones(open_.shape[1], bool), done_ns, window, list(names))


def _rows(part: pa.Table, names: dict[str, int]) -> np.ndarray:
    """Return requests as columns of numbers, in the order of ``_ROW``."""
    ts_ns, queue_ns, device_ns, dev, pid = (
        part[n].to_numpy() for n in ("ts_ns", "queue_ns", "device_ns", "dev", "pid")
    )
    op = _codes(part["op"], {kind: code for code, kind in enumerate(KINDS)}, grow=False)
    comm = _codes(part["comm"], names, grow=True)
    # As numbers with NaN: to fill nulls, pyarrow would have to load its compute functions.
    parent = np.nan_to_num(part["parent_dev"].to_numpy()).astype(np.int64)
    looped = parent >> 20 == LOOP_MAJOR
    issued_ns = ts_ns + queue_ns
    rows: np.ndarray = np.array(
        [dev, op, issued_ns, issued_ns + device_ns, pid, comm, looped], np.int64
    )
    return rows


def _codes(column: pa.ChunkedArray, known: dict[str, int], *, grow: bool) -> np.ndarray:
    """Return texts as codes; without ``grow`` an unknown text is -1, else it is added."""
    texts = column.combine_chunks()
    words = [str(word) for word in texts.dictionary.to_pylist()]
    for word in words if grow else ():
        known.setdefault(word, len(known))
    codes = np.array([known.get(word, -1) for word in words], np.int64)
    found: np.ndarray = codes[texts.indices.to_numpy()]
    return found


def _turns(
    rows: np.ndarray, chosen: np.ndarray, done_ns: dict[int, int], window: Window, names: list[str]
) -> Turns:
    """Put the chosen requests into the order of the disks; update ``done_ns``, the end of each."""
    chosen = chosen & (rows[_KIND] >= 0)
    if window is not None:
        chosen &= (rows[_FROM] < window[1]) & (rows[_TO] > window[0])
    places = np.flatnonzero(chosen)
    order = np.lexsort((rows[_TO][places], rows[_DISK][places]))
    rows = rows.take(places[order], axis=1)  # one copy; a mask of all rows takes far longer
    disk, kind, from_ns, to_ns, pid, comm, looped = rows
    before_ns = np.empty_like(to_ns)
    before_ns[1:] = to_ns[:-1]
    for number in np.unique(disk).tolist():
        first, end = np.searchsorted(disk, [number, number + 1]).tolist()
        before_ns[first] = done_ns.get(number, from_ns[first])
        done_ns[number] = int(to_ns[end - 1])
    return Turns(disk, kind, np.maximum(from_ns, before_ns), to_ns, pid, comm, looped > 0, names)
