"""The exact split: every nanosecond of every call belongs to one cause.

The recorder's four numbers (on CPU, blocked, run queue, preempted) add up to the length of the
call. The segments of a call only label its blocked part: time that they do not cover, because one
was lost or was never recorded, becomes ``unexplained``, so the sum is always right;
``sum_error_ns`` would show an error.
"""

from dataclasses import dataclass

import duckdb

from spoolscope.analysis.causes import MACHINE
from spoolscope.analysis.latency import SYSCALL_CLASSES
from spoolscope.analysis.throttle import name_limits

# Most calls were on the CPU for all of their length: only the others, a few per cent, are joined
# with the segments. Calls that sync, or that samples and commits name, are here, too, so that no
# later stage has to search all calls. For keys of two columns DuckDB compares every row with each
# null row.
_WAITED = """
CREATE OR REPLACE TEMP TABLE waited AS
SELECT ts_ns, dur_ns, oncpu_ns, blocked_ns, runq_ns, preempted_ns, stolen_ns, pid, tid, seq, comm,
    syscall, dev, path_id, errno, flags, {shown} AS shown
FROM syscalls
WHERE dur_ns != oncpu_ns OR oncpu_ns < 0 OR blocked_ns != 0 OR runq_ns != 0 OR preempted_ns != 0
    OR stolen_ns NOT BETWEEN 0 AND oncpu_ns
    OR list_contains({sync}, syscall)
    OR (tid, seq) IN (SELECT tid, seq FROM samples WHERE seq IS NOT NULL
        UNION ALL SELECT trigger_tid, trigger_seq FROM commits WHERE trigger_seq IS NOT NULL)
"""

# Thread ids and sequence numbers may be reused in a long trace; their times distinguish calls.
_WAITS = """
CREATE OR REPLACE TEMP TABLE named_waits AS
WITH blocked AS (
    SELECT ts_ns, dur_ns, pid, tid, seq, stack_id, dir_id, name_id, waker, waker_pid, waker_tid,
        waker_comm, waker_seq
    FROM segments WHERE state = 'blocked' AND seq IS NOT NULL
)
SELECT c.rowid AS call, s.ts_ns, s.dur_ns, c.ts_ns AS call_ns, c.pid, c.tid, c.seq, c.comm,
    c.syscall, c.dev, c.path_id, c.errno, c.flags, s.stack_id,
    coalesce(k.cause, 'unexplained') AS cause, coalesce(k.filesystem, 'any') AS filesystem,
    s.waker, s.waker_pid, s.waker_tid, s.waker_comm, s.waker_seq, s.dir_id, s.name_id,
    true AS placed, c.shown
FROM blocked s
JOIN waited c ON c.tid = s.tid AND c.seq = s.seq AND c.pid = s.pid
    AND s.ts_ns BETWEEN c.ts_ns AND c.ts_ns + c.dur_ns
LEFT JOIN stack_causes k ON k.stack_id = s.stack_id
"""

_COVERED = """
CREATE OR REPLACE TEMP TABLE covered AS
SELECT call, CAST(sum(dur_ns) AS BIGINT) AS blocked_ns FROM named_waits GROUP BY call
"""

# Blocked time of a call that its segments do not cover, as one more wait. Its time is unknown: it
# is not placed, and gets the start of the call.
_REMAINDER = """
INSERT INTO named_waits
SELECT c.rowid, c.ts_ns, c.blocked_ns - coalesce(w.blocked_ns, 0), c.ts_ns, c.pid, c.tid, c.seq,
    c.comm, c.syscall, c.dev, c.path_id, c.errno, c.flags, NULL, 'unexplained', 'any', NULL, NULL,
    NULL, NULL, NULL, NULL, NULL, false, c.shown
FROM waited c LEFT JOIN covered w ON w.call = c.rowid
WHERE c.blocked_ns > coalesce(w.blocked_ns, 0)
"""

_CALL = "ts_ns, pid, tid, seq, comm, syscall"
_CALL_CAUSES = f"""
CREATE OR REPLACE TEMP VIEW call_causes AS
SELECT {_CALL.replace("ts_ns", "call_ns AS ts_ns")}, cause, CAST(sum(dur_ns) AS BIGINT) AS ns
FROM named_waits GROUP BY ALL
UNION ALL SELECT * FROM (
    SELECT {_CALL}, unnest({list(MACHINE)}) AS cause, unnest([{", ".join(MACHINE.values())}]) AS ns
    FROM syscalls
) WHERE ns != 0
"""

_BLOCKED = "SELECT CAST(coalesce(sum(blocked_ns), 0) AS BIGINT) FROM waited WHERE shown"

_UNCOVERED = """
SELECT CAST(coalesce(sum(dur_ns), 0) AS BIGINT) FROM named_waits WHERE shown AND NOT placed
"""

_ERROR = """
SELECT coalesce(max(abs(dur_ns - oncpu_ns - blocked_ns - runq_ns - preempted_ns)), 0),
    greatest(0, -least(min(oncpu_ns), min(blocked_ns), min(runq_ns), min(preempted_ns),
        min(stolen_ns), min(oncpu_ns - stolen_ns)))
FROM waited
"""

# Difference of the sum of parts after labelling and the whole, for calls that waited.
_ERROR_WAITED = """
WITH named AS (
    SELECT call, CAST(sum(dur_ns) AS BIGINT) AS ns FROM named_waits GROUP BY call
)
SELECT coalesce(max(abs(c.dur_ns - c.oncpu_ns - c.runq_ns - c.preempted_ns - n.ns)), 0)
FROM named n JOIN waited c ON c.rowid = n.call
"""

_STATES = """
WITH own AS (
    SELECT ts_ns, dur_ns, pid, tid, seq, state FROM segments WHERE seq IS NOT NULL AND dur_ns > 0
), seen AS (
    SELECT c.rowid AS call, count(*) AS n,
        coalesce(sum(s.dur_ns) FILTER (s.state = 'blocked'), 0) AS blocked_ns,
        coalesce(sum(s.dur_ns) FILTER (s.state = 'runq'), 0) AS runq_ns,
        coalesce(sum(s.dur_ns) FILTER (s.state = 'preempted'), 0) AS preempted_ns
    FROM own s LEFT JOIN waited c ON c.tid = s.tid AND c.seq = s.seq AND c.pid = s.pid
        AND s.ts_ns BETWEEN c.ts_ns AND c.ts_ns + c.dur_ns
    GROUP BY call
)
SELECT count(call), CAST(coalesce(max(greatest(abs(c.blocked_ns - s.blocked_ns),
        abs(c.runq_ns - s.runq_ns), abs(c.preempted_ns - s.preempted_ns))), 0) AS BIGINT),
    CAST(coalesce(sum(n) FILTER (call IS NULL), 0) AS BIGINT)
FROM seen s LEFT JOIN waited c ON c.rowid = s.call
"""


@dataclass(frozen=True)
class Split:
    """Errors of the sums of parts of calls.

    Attributes:
        sum_error_ns: Largest |parts - whole| over all calls, after labelling.
        segment_error_ns: Largest difference between a recorded part of a call and the sum of
            the call's segments of that state, over the calls that have segments.
        calls_with_segments: Number of calls in that comparison.
        stray_segments: Segments whose call is not in the trace.
        blocked_ns: Blocked time of all calls.
        without_segment_ns: Blocked time that no segment covers.
    """

    sum_error_ns: int
    segment_error_ns: int
    calls_with_segments: int
    stray_segments: int
    blocked_ns: int
    without_segment_ns: int


def show_calls(con: duckdb.DuckDBPyConnection, shown: str) -> None:
    """Create ``shown_calls``: those for which a condition on a row of ``syscalls`` holds."""
    con.execute(f"CREATE OR REPLACE TEMP VIEW shown_calls AS SELECT * FROM syscalls WHERE {shown}")


def find_waited(con: duckdb.DuckDBPyConnection, shown: str) -> None:
    """Create ``waited``; ``shown`` is the SQL condition for a shown call."""
    con.execute(_WAITED.format(sync=list(SYSCALL_CLASSES["sync"]), shown=shown))


def name_waits(con: duckdb.DuckDBPyConnection) -> None:
    """Create ``named_waits``: the waits of calls, which add up to the blocked time of each."""
    con.execute(_WAITS)
    name_limits(con, "named_waits")
    con.execute(_COVERED)
    con.execute(_REMAINDER)


def check_split(con: duckdb.DuckDBPyConnection) -> Split:
    """Add the parts of all calls up again (needs ``waited`` and ``named_waits``)."""
    (blocked,) = _one(con, _BLOCKED)
    (parts_error, negative) = _one(con, _ERROR)
    (waited_error,) = _one(con, _ERROR_WAITED)
    (compared, segment_error, strays) = _one(con, _STATES)
    (uncovered,) = _one(con, _UNCOVERED)
    return Split(
        sum_error_ns=max(parts_error, negative, waited_error),
        segment_error_ns=segment_error,
        calls_with_segments=compared,
        stray_segments=strays,
        blocked_ns=blocked,
        without_segment_ns=uncovered,
    )


def _one(con: duckdb.DuckDBPyConnection, query: str) -> tuple[int, ...]:
    rows = con.execute(query).fetchall()  # read to the end, to free the connection
    return rows[0] if rows else ()


def name_causes(con: duckdb.DuckDBPyConnection) -> None:
    """Create the view ``call_causes``: every call's time by cause, asleep or not."""
    con.execute(_CALL_CAUSES)
