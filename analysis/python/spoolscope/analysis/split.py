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
from spoolscope.analysis.latency import SYSCALL_CLASSES, sum_calls
from spoolscope.analysis.stacks import label_stacks

# Most calls never leave the CPU: only the others, a few per cent, meet the segments. Those that
# ask for commits are here, too: the journal's events name them.
_WAITED = """
CREATE OR REPLACE TEMP TABLE waited AS
SELECT ts_ns, dur_ns, oncpu_ns, blocked_ns, runq_ns, preempted_ns, pid, tid, seq, comm, syscall,
    dev, path_id
FROM syscalls
WHERE blocked_ns != 0 OR runq_ns != 0 OR preempted_ns != 0 OR syscall IN {sync}
"""

# Thread ids and sequence numbers may be reused in a long trace; time tells the calls apart.
_WAITS = """
CREATE OR REPLACE TEMP TABLE named_waits AS
WITH blocked AS (
    SELECT ts_ns, dur_ns, pid, tid, seq, stack_id, dir_id, waker, waker_pid, waker_tid, waker_comm,
        waker_seq
    FROM segments WHERE state = 'blocked' AND seq IS NOT NULL
)
SELECT s.ts_ns, s.dur_ns, c.ts_ns AS call_ns, c.pid, c.tid, c.seq, c.comm, c.syscall, c.dev,
    c.path_id, s.stack_id, coalesce(k.cause, 'unexplained') AS cause,
    coalesce(k.filesystem, 'any') AS filesystem, s.waker, s.waker_pid, s.waker_tid, s.waker_comm,
    s.waker_seq, s.dir_id, true AS placed
FROM blocked s
JOIN waited c ON c.tid = s.tid AND c.seq = s.seq AND c.pid = s.pid
    AND s.ts_ns BETWEEN c.ts_ns AND c.ts_ns + c.dur_ns
LEFT JOIN stack_causes k ON k.stack_id = s.stack_id
"""

_COVERED = """
CREATE OR REPLACE TEMP TABLE covered AS
SELECT call_ns, pid, tid, seq, CAST(sum(dur_ns) AS BIGINT) AS blocked_ns
FROM named_waits GROUP BY ALL
"""

# The blocked time of a call that its segments do not cover, as one more wait. When it was is not
# known: it is not placed, and stands at the start of the call.
_REMAINDER = """
INSERT INTO named_waits
SELECT c.ts_ns, c.blocked_ns - coalesce(w.blocked_ns, 0), c.ts_ns, c.pid, c.tid, c.seq, c.comm,
    c.syscall, c.dev, c.path_id, NULL, 'unexplained', 'any', NULL, NULL, NULL, NULL, NULL,
    NULL, false
FROM waited c
LEFT JOIN covered w ON w.tid = c.tid AND w.seq = c.seq AND w.pid = c.pid AND w.call_ns = c.ts_ns
WHERE c.blocked_ns > coalesce(w.blocked_ns, 0)
"""

# Parts after labelling against the whole, for calls that waited.
_ERROR_WAITED = """
WITH named AS (
    SELECT call_ns, pid, tid, seq, CAST(sum(dur_ns) AS BIGINT) AS ns FROM named_waits GROUP BY ALL
)
SELECT coalesce(max(abs(c.dur_ns - c.oncpu_ns - c.runq_ns - c.preempted_ns - n.ns)), 0)
FROM named n
JOIN waited c ON c.tid = n.tid AND c.seq = n.seq AND c.pid = n.pid AND c.ts_ns = n.call_ns
"""

_STATES = """
WITH own AS (
    SELECT ts_ns, dur_ns, pid, tid, seq, state FROM segments WHERE seq IS NOT NULL AND dur_ns > 0
), seen AS (
    SELECT c.ts_ns, c.pid, c.tid, c.seq, any_value(c.blocked_ns) AS c_blocked_ns,
        any_value(c.runq_ns) AS c_runq_ns, any_value(c.preempted_ns) AS c_preempted_ns,
        coalesce(sum(s.dur_ns) FILTER (s.state = 'blocked'), 0) AS blocked_ns,
        coalesce(sum(s.dur_ns) FILTER (s.state = 'runq'), 0) AS runq_ns,
        coalesce(sum(s.dur_ns) FILTER (s.state = 'preempted'), 0) AS preempted_ns, count(*) AS n
    FROM own s JOIN waited c ON c.tid = s.tid AND c.seq = s.seq AND c.pid = s.pid
        AND s.ts_ns BETWEEN c.ts_ns AND c.ts_ns + c.dur_ns
    GROUP BY ALL
)
SELECT count(*), CAST(coalesce(max(greatest(abs(c_blocked_ns - blocked_ns),
        abs(c_runq_ns - runq_ns), abs(c_preempted_ns - preempted_ns))), 0) AS BIGINT),
    (SELECT count(*) FROM own) - CAST(coalesce(sum(n), 0) AS BIGINT)
FROM seen
"""


@dataclass(frozen=True)
class Split:
    """How well the parts of the calls add up.

    Attributes:
        sum_error_ns: Largest |parts - whole| over all calls, after labelling.
        segment_error_ns: Largest difference between a recorded part of a call and the sum of
            the call's segments of that state, over the calls that have segments.
        calls_with_segments: How many calls that comparison covers.
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


def split(con: duckdb.DuckDBPyConnection, rules: Sequence[Rule] | None = None) -> Split:
    """Label the blocked time of every call.

    Creates the temporary tables ``stack_causes``, ``call_totals`` (one row for each name of a
    call), ``waited`` (the calls that sync, or were not on the CPU all the time) and
    ``named_waits``; a row of the latter is one interval in which one call was blocked, with its
    cause, and the rows of a call add up to its ``blocked_ns``.
    """
    label_stacks(con, load_rules() if rules is None else rules)
    sum_calls(con)
    con.execute(_WAITED.format(sync=SYSCALL_CLASSES["sync"]))
    for statement in (_WAITS, _COVERED, _REMAINDER):
        con.execute(statement)
    (blocked, parts_error, negative) = _one(
        con,
        "SELECT CAST(coalesce(sum(blocked_ns), 0) AS BIGINT), coalesce(max(error_ns), 0), "
        "coalesce(max(negative_ns), 0) FROM call_totals",
    )
    (waited_error,) = _one(con, _ERROR_WAITED)
    (compared, segment_error, strays) = _one(con, _STATES)
    (covered,) = _one(con, "SELECT CAST(coalesce(sum(blocked_ns), 0) AS BIGINT) FROM covered")
    return Split(
        sum_error_ns=max(parts_error, negative, waited_error),
        segment_error_ns=segment_error,
        calls_with_segments=compared,
        stray_segments=strays,
        blocked_ns=blocked,
        without_segment_ns=max(0, blocked - covered),
    )


def _one(con: duckdb.DuckDBPyConnection, query: str) -> tuple[int, ...]:
    row = con.execute(query).fetchone()
    return row if row is not None else ()
