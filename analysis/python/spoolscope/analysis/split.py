"""The exact split: every nanosecond of every call belongs to one cause.

The recorder's four numbers (on CPU, blocked, run queue, preempted) add up to the length of the
call. The segments of a call only label its blocked part: what they do not cover, because one
was lost or was never recorded, becomes ``unexplained``, so the sum holds in any case, and
``sum_error_ns`` shows if it ever did not.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import duckdb

from spoolscope.analysis.causes import Rule, load_rules
from spoolscope.analysis.stacks import label_stacks

# Thread ids and sequence numbers may be reused in a long trace; time tells the calls apart.
_WAITS = """
CREATE OR REPLACE TEMP TABLE named_waits AS
WITH blocked AS (
    SELECT ts_ns, dur_ns, pid, tid, seq, stack_id, waker_pid, waker_tid, waker_comm, waker_seq
    FROM segments WHERE state = 'blocked' AND seq IS NOT NULL
)
SELECT s.ts_ns, s.dur_ns, c.ts_ns AS call_ns, c.pid, c.tid, c.seq, c.comm, c.syscall, c.dev,
    c.path_id, s.stack_id, coalesce(k.cause, 'unexplained') AS cause,
    coalesce(k.filesystem, 'any') AS filesystem, s.waker_pid, s.waker_tid, s.waker_comm,
    s.waker_seq
FROM blocked s
JOIN syscalls c ON c.tid = s.tid AND c.seq = s.seq AND c.pid = s.pid
    AND s.ts_ns BETWEEN c.ts_ns AND c.ts_ns + c.dur_ns
LEFT JOIN stack_causes k ON k.stack_id = s.stack_id
"""

_COVERED = """
CREATE OR REPLACE TEMP TABLE covered AS
SELECT call_ns, pid, tid, seq, CAST(sum(dur_ns) AS BIGINT) AS blocked_ns
FROM named_waits GROUP BY ALL
"""

# The blocked time of a call that its segments do not cover, as one more wait.
_REMAINDER = """
INSERT INTO named_waits
SELECT c.ts_ns, c.blocked_ns - coalesce(w.blocked_ns, 0), c.ts_ns, c.pid, c.tid, c.seq, c.comm,
    c.syscall, c.dev, c.path_id, NULL, 'unexplained', 'any', NULL, NULL, NULL, NULL
FROM syscalls c
LEFT JOIN covered w ON w.tid = c.tid AND w.seq = c.seq AND w.pid = c.pid AND w.call_ns = c.ts_ns
WHERE c.blocked_ns > coalesce(w.blocked_ns, 0)
"""

# Parts after labelling against the whole, for calls that waited ...
_ERROR_WAITED = """
WITH named AS (
    SELECT call_ns, pid, tid, seq, CAST(sum(dur_ns) AS BIGINT) AS ns FROM named_waits GROUP BY ALL
)
SELECT coalesce(max(abs(c.dur_ns - c.oncpu_ns - c.runq_ns - c.preempted_ns - n.ns)), 0)
FROM named n
JOIN syscalls c ON c.tid = n.tid AND c.seq = n.seq AND c.pid = n.pid AND c.ts_ns = n.call_ns
"""

# ... and the recorder's own parts for every call.
_ERROR_PARTS = """
SELECT coalesce(max(abs(dur_ns - oncpu_ns - blocked_ns - runq_ns - preempted_ns)), 0),
    coalesce(max(-least(oncpu_ns, blocked_ns, runq_ns, preempted_ns)), 0)
FROM syscalls
"""

_STATES = """
WITH seen AS (
    SELECT pid, tid, seq, min(ts_ns) AS first_ns,
        CAST(sum(dur_ns) FILTER (state = 'blocked') AS BIGINT) AS blocked_ns,
        CAST(sum(dur_ns) FILTER (state = 'runq') AS BIGINT) AS runq_ns,
        CAST(sum(dur_ns) FILTER (state = 'preempted') AS BIGINT) AS preempted_ns
    FROM segments WHERE seq IS NOT NULL GROUP BY ALL
)
SELECT count(*), coalesce(max(greatest(abs(c.blocked_ns - coalesce(s.blocked_ns, 0)),
        abs(c.runq_ns - coalesce(s.runq_ns, 0)),
        abs(c.preempted_ns - coalesce(s.preempted_ns, 0)))), 0)
FROM seen s
JOIN syscalls c ON c.tid = s.tid AND c.seq = s.seq AND c.pid = s.pid
    AND s.first_ns BETWEEN c.ts_ns AND c.ts_ns + c.dur_ns
"""


@dataclass(frozen=True)
class Split:
    """How well the parts of the calls add up.

    Attributes:
        sum_error_ns: Largest |parts - whole| over all calls, after labelling.
        segment_error_ns: Largest difference between a recorded part of a call and the sum of
            the call's segments of that state, over the calls that have segments.
        calls_with_segments: How many calls that comparison covers.
        blocked_ns: Blocked time of all calls.
        without_segment_ns: Blocked time that no segment covers.
    """

    sum_error_ns: int
    segment_error_ns: int
    calls_with_segments: int
    blocked_ns: int
    without_segment_ns: int


def split(con: duckdb.DuckDBPyConnection, rules: Sequence[Rule] | None = None) -> Split:
    """Label the blocked time of every call.

    Creates the temporary tables ``stack_causes`` and ``named_waits``; a row of the latter is one
    interval in which one call was blocked, with its cause, and the rows of a call add up to
    its ``blocked_ns``.
    """
    label_stacks(con, load_rules() if rules is None else rules)
    for statement in (_WAITS, _COVERED, _REMAINDER):
        con.execute(statement)
    (parts_error, negative) = _one(con, _ERROR_PARTS)
    (waited_error,) = _one(con, _ERROR_WAITED)
    (compared, segment_error) = _one(con, _STATES)
    (blocked,) = _one(con, "SELECT CAST(coalesce(sum(blocked_ns), 0) AS BIGINT) FROM syscalls")
    (covered,) = _one(con, "SELECT CAST(coalesce(sum(blocked_ns), 0) AS BIGINT) FROM covered")
    return Split(
        sum_error_ns=max(parts_error, negative, waited_error),
        segment_error_ns=segment_error,
        calls_with_segments=compared,
        blocked_ns=blocked,
        without_segment_ns=max(0, blocked - covered),
    )


def _one(con: duckdb.DuckDBPyConnection, query: str) -> tuple[int, ...]:
    row = con.execute(query).fetchone()
    return row if row is not None else ()
