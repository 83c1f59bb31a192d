"""Processes that had the CPU that others waited for; the recorder names a thread for each wait."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

import duckdb

from spoolscope.analysis.families import Families, Group, Key, grouped, narrowest

# A row of segments is one wait for a CPU; the edge is the part of it in which the named thread had
# that CPU.
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
    SELECT h.* EXCLUDE (ts_ns), c.comm, c.syscall, c.dev, c.path_id, c.shown
    FROM held h JOIN waited c ON c.tid = h.tid AND c.seq = h.seq AND c.pid = h.pid
        AND h.ts_ns BETWEEN c.ts_ns AND c.ts_ns + c.dur_ns
    UNION ALL
    SELECT h.* EXCLUDE (ts_ns), k.comm, NULL, j.dev, NULL, true
    FROM held h LEFT JOIN kernel k ON k.tid = h.tid LEFT JOIN journals j ON j.tid = h.tid
    WHERE h.seq IS NULL
)
"""

_SLEEPS = """
INSERT INTO all_sleeps BY NAME
SELECT id, from_ns, to_ns, pid, tid, seq, comm, syscall, dev, path_id, cause, 'any' AS filesystem,
    shown
FROM cpu_waits
"""

_PIECES = """
INSERT INTO sleep_pieces BY NAME
SELECT id, from_ns, to_ns, held_pid AS culprit_pid, held_tid AS culprit_tid,
    held_comm AS culprit_comm, held_tid AS via_tid, 'cpu' AS mechanism, 'recorded' AS evidence
FROM cpu_waits
"""

# For each process: the processes that had the CPU for which its calls waited. A long recording has
# hundreds of thousands of such pairs, so only sums of them become Python values.
_HELD = """
CREATE OR REPLACE TEMP TABLE held_cpus AS
SELECT s.held_pid, s.held_comm, c.pid, c.comm, c.syscall,
    CASE s.state WHEN 'runq' THEN 'runq' ELSE 'preempt' END AS cause,
    CAST(sum(s.held_ns) AS BIGINT) AS ns
FROM segments s JOIN waited c ON c.tid = s.tid AND c.seq = s.seq AND c.pid = s.pid
WHERE s.held_ns > 0 AND c.shown GROUP BY ALL
"""

RECORDER = ("spoolscope", "spoolscope-reco")
"""Names of the recorder's own threads, as the kernel truncates them: their time is measurement."""
REPLAYER = "spoolscope-repl"

# Calls that wait for processes of their own name show that there are too few CPUs, not a culprit.
_OF_OTHERS = f"held_comm != comm AND held_comm NOT IN {(*RECORDER, REPLAYER)}"
_CHARGES = f"""
SELECT held_pid, held_comm, CAST(sum(ns) AS BIGINT) FROM held_cpus WHERE {_OF_OTHERS}
GROUP BY ALL ORDER BY ALL
"""
_HURT = f"""
SELECT syscall, CAST(sum(ns) AS BIGINT) FROM held_cpus
WHERE {_OF_OTHERS} AND (held_pid, held_comm) IN (SELECT unnest($pids), unnest($comms))
    AND NOT list_contains($inside, pid)
GROUP BY ALL ORDER BY ALL
"""
_STRANGERS = f"""
SELECT held_pid, held_comm, syscall, cause, CAST(sum(ns) AS BIGINT) FROM held_cpus
WHERE held_comm != '{REPLAYER}' AND held_pid NOT IN (SELECT pid FROM process_causes)
GROUP BY ALL ORDER BY ALL
"""
_MEASUREMENT = f"""
SELECT CAST(coalesce(sum(ns), 0) AS BIGINT) FROM held_cpus WHERE held_comm IN {RECORDER}
"""


@dataclass(frozen=True)
class CpuHolder:
    """The processes that had for the longest time the CPUs that calls of others waited for.

    Attributes:
        who: The processes in words; ``name`` is only their name.
        ns: Time that shown calls of others waited for a CPU which these processes had.
        syscall: The kind of call that waited longest for them, in sum; syscall_ns that sum.
        outside_ns: Time of all shown calls of others.
    """

    who: str
    name: str
    ns: int
    syscall: str
    syscall_ns: int
    outside_ns: int

    @property
    def share(self) -> float:
        """Share of the others' call time that was spent waiting for these CPUs."""
        return min(1.0, self.ns / self.outside_ns) if self.outside_ns > 0 else 0.0


def add_cpu_waits(con: duckdb.DuckDBPyConnection, above: int) -> None:
    """Add waits for a CPU to ``all_sleeps``, numbered after ``above``, and to ``sleep_pieces``.

    They are no sleeps: a thread that is ready waits for the CPU and nothing else.
    """
    con.execute(_CPU_WAITS.format(above=above))
    con.execute(_SLEEPS)
    con.execute(_PIECES)


def find_held_cpus(con: duckdb.DuckDBPyConnection) -> None:
    """Create ``held_cpus``: the processes that had the CPUs that calls waited for, in sums.

    Needs ``waited``.
    """
    con.execute(_HELD)


def taken_by_strangers(
    con: duckdb.DuckDBPyConnection, families: Families
) -> dict[str, dict[str, int]]:
    """Return {call: {cause: ns}} of waits for a CPU that a program outside these calls had.

    Args:
        con: Needs ``held_cpus``, and ``process_causes`` of the processes that made the calls.
        families: Groups of each process: kernel threads work for the calls.
    """
    found: dict[str, dict[str, int]] = {}
    for pid, comm, syscall, cause, ns in con.execute(_STRANGERS).fetchall():
        if not families.is_kernel((pid, comm)):
            causes = found.setdefault(syscall, {})
            causes[cause] = causes.get(cause, 0) + ns
    return found


def measurement_ns(con: duckdb.DuckDBPyConnection) -> int:
    """Return the time that calls waited for a CPU which the recorder had (``held_cpus``)."""
    ((ns,),) = con.execute(_MEASUREMENT).fetchall()
    return int(ns)


def worst_holder(
    con: duckdb.DuckDBPyConnection, families: Families, times: Mapping[Key, int]
) -> CpuHolder | None:
    """Return the processes that held up calls of others longest by having their CPU, or None.

    Args:
        con: Needs ``held_cpus``.
        families: Groups of each process.
        times: Time of the calls that are shown, by process.
    """
    charges = {(pid, comm): ns for pid, comm, ns in con.execute(_CHARGES).fetchall()}
    worst = [level[0] for level in grouped(charges, families, times).values() if level]
    hurt = [(group, _hurt(con, group)) for group in worst]
    chosen = narrowest((group, calls.total()) for group, calls in hurt)
    for group, calls in hurt:
        if group is chosen and calls:
            return _holder(group, calls, times)
    return None


def _hurt(con: duckdb.DuckDBPyConnection, group: Group) -> Counter[str]:
    """Return how long calls of others waited for a CPU that the group had, by kind of call."""
    pids, comms = zip(*group.by_member, strict=True)
    given = {"pids": list(pids), "comms": list(comms), "inside": list(group.pids)}
    return Counter(dict(con.execute(_HURT, given).fetchall()))


def _holder(group: Group, hurt: Counter[str], times: Mapping[Key, int]) -> CpuHolder:
    ((syscall, syscall_ns),) = hurt.most_common(1)
    outside = sum(ns for (pid, _), ns in times.items() if pid not in group.pids)
    return CpuHolder(group.words, group.name, hurt.total(), syscall, syscall_ns, outside)
