"""Waits for requests that control-group limits held back before they were made.

blk-throttle sets aside I/O over a limit before it becomes a request, and a thread that waits for it
sleeps on the page or the buffer as for any other request: its stack shows no limit. But the
recorder marks requests made by the worker that releases such I/O (``held_back``). A wait that ended
with such a request was for the limit until the request was made.
"""

import duckdb

from spoolscope.analysis.causes import COMMIT_ENDS, ENDS_WITH_REQUEST, one_of
from spoolscope.analysis.services import LOOP_MAJOR

# Sleeps that end with a request. On ext4 a commit has its own thread, which wakes the calls.
_FOR_REQUESTS = f"""
{one_of("cause", ENDS_WITH_REQUEST)}
AND NOT ({one_of("cause", COMMIT_ENDS)} AND filesystem = 'ext4' AND seq IS NOT NULL)
AND placed AND waker_seq IS NULL
"""

# The request that ended a wait: the last one on its disk that completed before the thread was
# woken. The driver's own flushes end within or after the request that they are for. Filesystems
# over several disks have an anonymous device number, below 1 << 20: then any disk may be meant.
_HELD = """
CREATE OR REPLACE TEMP TABLE held AS
WITH requests AS (
    SELECT ts_ns AS made_ns, ts_ns + queue_ns + device_ns AS done_ns,
        unnest([coalesce(parent_dev, dev), 0]) AS disk, coalesce(held_back, false) AS held_back
    FROM block_ios
    WHERE op != 'flush' AND (parent_dev IS NULL OR parent_dev >> 20 != {loop_major})
), asleep AS (
    SELECT rowid AS row, ts_ns, ts_ns + dur_ns AS woken_ns,
        CASE WHEN dev >= 1 << 20 THEN dev ELSE 0 END AS disk
    FROM {table} WHERE {for_requests}
)
SELECT a.row, r.made_ns - a.ts_ns AS held_ns
FROM asleep a ASOF JOIN requests r ON r.disk = a.disk AND a.woken_ns >= r.done_ns
WHERE r.held_back AND r.made_ns > a.ts_ns
"""

_NAMED = """
INSERT INTO {table}
SELECT t.* REPLACE (h.held_ns AS dur_ns, 'io_throttle' AS cause, NULL AS waker, NULL AS waker_pid,
    NULL AS waker_tid, NULL AS waker_comm)
FROM {table} t JOIN held h ON h.row = t.rowid;
UPDATE {table} t SET ts_ns = ts_ns + h.held_ns, dur_ns = dur_ns - h.held_ns
FROM held h WHERE h.row = t.rowid
"""


def name_limits(con: duckdb.DuckDBPyConnection, table: str) -> None:
    """Cut waits for held-back requests in two: the wait for the limit, and the rest.

    Args:
        con: Needs ``block_ios``.
        table: Rows are waits: ts_ns, dur_ns, seq, dev, cause, filesystem, waker, waker_pid,
            waker_tid, waker_comm, waker_seq, placed. The part until the request was made becomes a
            row of the cause io_throttle without a waker; the sum of ``dur_ns`` does not change.
    """
    if not con.execute("SELECT 1 FROM block_ios WHERE held_back LIMIT 1").fetchall():
        return
    con.execute(_HELD.format(table=table, for_requests=_FOR_REQUESTS, loop_major=LOOP_MAJOR))
    con.execute(_NAMED.format(table=table))
