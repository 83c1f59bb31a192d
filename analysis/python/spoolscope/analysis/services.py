"""What the disks were busy with: the time of every request, by what was done for it."""

import duckdb

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
