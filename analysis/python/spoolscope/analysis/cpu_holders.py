"""Who had the CPU that others waited for: the recorder names one thread for each such wait."""

from dataclasses import dataclass

import duckdb

# A row of segments is one wait for a CPU; what of it the thread named had that CPU is the edge.
_CPU_WAITS = """
CREATE OR REPLACE TEMP TABLE cpu_waits AS
WITH held AS (
    SELECT ts_ns, pid, tid, seq, CASE state WHEN 'runq' THEN 'runq' ELSE 'preempt' END AS cause,
        ts_ns + held_after_ns AS from_ns, ts_ns + held_after_ns + held_ns AS to_ns, held_pid,
        held_tid, held_comm
    FROM segments WHERE held_ns > 0
), journals AS (
    SELECT tid, any_value(dev) AS dev FROM commits WHERE kind = 'jbd2_commit' GROUP BY tid
), kernel AS (
    SELECT tid, any_value(comm) AS comm FROM threads WHERE kind = 'kernel' GROUP BY tid
)
SELECT {above} + row_number() OVER (ORDER BY from_ns, tid) AS id, * FROM (
    SELECT h.* EXCLUDE (ts_ns), c.comm, c.syscall, c.dev, c.path_id
    FROM held h JOIN waited c ON c.tid = h.tid AND c.seq = h.seq AND c.pid = h.pid
        AND h.ts_ns BETWEEN c.ts_ns AND c.ts_ns + c.dur_ns
    UNION ALL
    SELECT h.* EXCLUDE (ts_ns), k.comm, NULL, j.dev, NULL
    FROM held h LEFT JOIN kernel k ON k.tid = h.tid LEFT JOIN journals j ON j.tid = h.tid
    WHERE h.seq IS NULL
)
"""

_SLEEPS = """
INSERT INTO all_sleeps BY NAME
SELECT id, from_ns, to_ns, pid, tid, seq, comm, syscall, dev, path_id, cause, 'any' AS filesystem
FROM cpu_waits
"""

_PIECES = """
INSERT INTO sleep_pieces BY NAME
SELECT id, from_ns, to_ns, held_pid AS culprit_pid, held_tid AS culprit_tid,
    held_comm AS culprit_comm, held_tid AS via_tid, 'cpu' AS mechanism, 'recorded' AS evidence
FROM cpu_waits
"""

# Calls that wait for others of their own name are too many for the CPUs, which is no culprit.
_WORST = """
WITH held AS (
    SELECT c.syscall, s.held_pid, s.held_comm, s.held_ns
    FROM segments s JOIN waited c ON c.tid = s.tid AND c.seq = s.seq AND c.pid = s.pid
    WHERE s.held_ns > 0 AND s.held_comm != c.comm
), worst AS (
    SELECT held_comm AS comm, CASE WHEN count(DISTINCT held_pid) = 1 THEN any_value(held_pid) END
        AS pid, CAST(sum(held_ns) AS BIGINT) AS ns
    FROM held GROUP BY 1 ORDER BY ns DESC, comm LIMIT 1
), hurt AS (
    SELECT syscall, CAST(sum(held_ns) AS BIGINT) AS ns FROM held
    WHERE held_comm = (SELECT comm FROM worst) GROUP BY 1 ORDER BY ns DESC, syscall LIMIT 1
)
SELECT w.comm, w.pid, w.ns, h.syscall, h.ns FROM worst w, hurt h
"""


@dataclass(frozen=True)
class CpuHolder:
    """Those that had, longest of all, the CPUs that calls of others waited for.

    Attributes:
        comm: Their name; pid their process, if it was one only.
        ns: Time that calls waited for a CPU which they had meanwhile.
        syscall: The call that waited longest for them; syscall_ns how long.
    """

    comm: str
    pid: int | None
    ns: int
    syscall: str
    syscall_ns: int


def add_cpu_waits(con: duckdb.DuckDBPyConnection, above: int) -> None:
    """Add waits for a CPU to ``all_sleeps``, by ids above, and who had it to ``sleep_pieces``.

    They are no sleeps: whatever else a thread had then, the CPU is what was waited for.
    """
    con.execute(_CPU_WAITS.format(above=above))
    con.execute(_SLEEPS)
    con.execute(_PIECES)


def worst_holder(con: duckdb.DuckDBPyConnection) -> CpuHolder | None:
    """Return who held up calls of others longest by having their CPU (needs ``waited``)."""
    row = con.execute(_WORST).fetchone()
    return CpuHolder(*row) if row else None
