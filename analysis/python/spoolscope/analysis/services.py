"""What the disks were busy with: the time of every request, by what was done for it."""

from collections import defaultdict

import duckdb
import numpy as np

from spoolscope.traces.trace import Trace

# A request with PREFLUSH waits in blk-flush.c for the disk's cache to be emptied before it is
# issued: what counts as queueing there is the flush, made for its submitter. One with FUA is
# followed by a flush where the disk knows no FUA. The flush request itself is inserted by a
# worker of the kernel; it is given to the last request that was due for one.
_SERVICES = """
CREATE OR REPLACE TEMP TABLE services AS
WITH requests AS (
    SELECT ts_ns, ts_ns + queue_ns AS issue_ns, ts_ns + queue_ns + device_ns AS done_ns,
        coalesce(parent_dev, dev) AS disk, pid, tid, comm, seq, op, preflush, fua
    FROM block_ios WHERE parent_dev IS NULL OR parent_dev >> 20 != {loop_major}
), parts AS (
    SELECT disk, pid, tid, comm, seq,
        unnest([CASE WHEN preflush THEN '{flush}' ELSE '{queue}' END, '{device}']) AS part,
        unnest([ts_ns, issue_ns]) AS from_ns, unnest([issue_ns, done_ns]) AS to_ns
    FROM requests WHERE op != 'flush'
), due AS (
    SELECT disk, pid, tid, comm, seq, CASE WHEN preflush THEN ts_ns ELSE done_ns END AS due_ns
    FROM requests WHERE op != 'flush' AND (preflush OR fua)
), emptied AS (
    SELECT f.disk, d.pid, d.tid, d.comm, d.seq, '{disk_flush}' AS part, f.ts_ns AS from_ns,
        f.done_ns AS to_ns
    FROM (SELECT disk, ts_ns, done_ns FROM requests WHERE op = 'flush') f
    ASOF LEFT JOIN due d ON d.disk = f.disk AND d.due_ns <= f.ts_ns
)
SELECT * REPLACE (CAST(part AS ENUM ('{queue}', '{device}', '{flush}', '{disk_flush}')) AS part)
FROM (SELECT * FROM parts UNION ALL BY NAME SELECT * FROM emptied)
WHERE from_ns < to_ns
"""

QUEUE, DEVICE, FLUSH, DISK_FLUSH = "queue", "device", "flush", "disk_flush"
_KINDS = {"read": 0, "write": 1, "flush": 2}
LOOP_MAJOR = 7  # Documentation/admin-guide/devices.txt


def find_services(con: duckdb.DuckDBPyConnection) -> None:
    """Create the table ``services``: one row for each stage of each request.

    ``part`` is queue (waiting to be issued), device (issued), flush (waiting for the disk's
    cache) or disk_flush (the disk empties its cache, for whichever requests); ``disk`` is the
    device or partition that a filesystem lies on. Requests that a loop device made of others are
    left out: they are those others.
    """
    con.execute(
        _SERVICES.format(
            queue=QUEUE, device=DEVICE, flush=FLUSH, disk_flush=DISK_FLUSH, loop_major=LOOP_MAJOR
        )
    )


def same_disk(dev: str, disk: str) -> str:
    """Return the SQL condition that a filesystem (its s_dev) may lie on a disk.

    Filesystems over several disks have an anonymous number, major 0, which names none of them.
    """
    return f"({dev} IS NULL OR {dev} < (1 << 20) OR {dev} = {disk})"


def served(trace: Trace) -> dict[tuple[int, str], np.ndarray]:
    """Return for how long each request was served, ns, by disk and kind (read, write, flush).

    A request that is behind others in the device is not served before the one ahead is done: only
    from then on its time says something of the disk.
    """
    found: dict[tuple[int, str], list[np.ndarray]] = defaultdict(list)
    done_ns: dict[int, int] = {}
    open_ = np.zeros((4, 0), np.int64)
    for part in trace.parts("block_ios", ("ts_ns", "queue_ns", "device_ns", "dev", "op")):
        ts_ns, queue_ns, device_ns, dev = (part[n].to_numpy() for n in part.column_names[:4])
        kinds = part["op"].combine_chunks()
        op = np.array([_KINDS.get(name, -1) for name in kinds.dictionary.to_pylist()], np.int64)
        rows = [dev, op[kinds.indices.to_numpy()], ts_ns + queue_ns, ts_ns + queue_ns + device_ns]
        known = np.concatenate([open_, rows], axis=1)
        # Those of later parts are not done before the last one of this part was made.
        done = known[3] <= ts_ns[-1]
        _serve(known[:, done], done_ns, found)
        open_ = known[:, ~done]
    _serve(open_, done_ns, found)
    return {key: np.concatenate(times) for key, times in found.items()}


def _serve(
    rows: np.ndarray, done_ns: dict[int, int], found: dict[tuple[int, str], list[np.ndarray]]
) -> None:
    """Add the times of requests (disk, kind, issued, done) that are next to be done."""
    rows = rows[:, rows[1] >= 0]
    for disk in np.unique(rows[0]).tolist():
        _, op, from_ns, to_ns = rows[:, rows[0] == disk]
        order = np.argsort(to_ns, kind="stable")
        op, from_ns, to_ns = op[order], from_ns[order], to_ns[order]
        before_ns = np.append(done_ns.get(disk, from_ns[0]), to_ns[:-1])
        for kind, code in _KINDS.items():
            found[disk, kind].append((to_ns - np.maximum(from_ns, before_ns))[op == code])
        done_ns[disk] = int(to_ns[-1])
