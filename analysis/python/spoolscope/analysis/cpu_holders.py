"""Processes that had the CPU that others waited for; the recorder names a thread for each wait."""

from collections import Counter, defaultdict
from collections.abc import Container, Iterable, Mapping
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

# For each process: the processes that had the CPU for which its calls waited.
_HELD = """
SELECT s.held_pid, s.held_comm, c.pid, c.comm, c.syscall,
    CASE s.state WHEN 'runq' THEN 'runq' ELSE 'preempt' END AS cause,
    CAST(sum(s.held_ns) AS BIGINT)
FROM segments s JOIN waited c ON c.tid = s.tid AND c.seq = s.seq AND c.pid = s.pid
WHERE s.held_ns > 0 AND c.shown GROUP BY ALL
"""

RECORDER = ("spoolscope", "spoolscope-reco")
"""Names of the recorder's own threads, as the kernel truncates them: their time is measurement."""
REPLAYER = "spoolscope-repl"
_OURS = (*RECORDER, REPLAYER)


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


@dataclass(frozen=True)
class Held:
    """Sum of one process's waits, in one kind of call, for a CPU that another process had."""

    holder: Key
    victim: Key
    syscall: str
    cause: str
    ns: int


def add_cpu_waits(con: duckdb.DuckDBPyConnection, above: int) -> None:
    """Add waits for a CPU to ``all_sleeps``, numbered after ``above``, and to ``sleep_pieces``.

    They are no sleeps: a thread that is ready waits for the CPU and nothing else.
    """
    con.execute(_CPU_WAITS.format(above=above))
    con.execute(_SLEEPS)
    con.execute(_PIECES)


def held_cpus(con: duckdb.DuckDBPyConnection) -> list[Held]:
    """Return the processes that had the CPUs that calls waited for (needs ``waited``)."""
    return [
        Held((pid, comm), (victim, name), syscall, cause, ns)
        for pid, comm, victim, name, syscall, cause, ns in con.execute(_HELD).fetchall()
    ]


def taken_by_strangers(
    held: Iterable[Held], families: Families, callers: Container[int]
) -> dict[str, dict[str, int]]:
    """Return {call: {cause: ns}} of waits for a CPU that a program outside these calls had.

    Args:
        held: All waits for a CPU whose holder is known.
        families: Groups of each process: kernel threads work for the calls.
        callers: The processes that made the calls.
    """
    found: dict[str, dict[str, int]] = {}
    for one in held:
        theirs = one.holder[0] in callers or one.holder[1] == REPLAYER
        if not theirs and not families.is_kernel(one.holder):
            causes = found.setdefault(one.syscall, {})
            causes[one.cause] = causes.get(one.cause, 0) + one.ns
    return found


def measurement_ns(held: Iterable[Held]) -> int:
    """Return the time that calls waited for a CPU which the recorder had."""
    return sum(one.ns for one in held if one.holder[1] in RECORDER)


def worst_holder(
    held: Iterable[Held], families: Families, times: Mapping[Key, int]
) -> CpuHolder | None:
    """Return the processes that held up calls of others longest by having their CPU, or None.

    Calls that wait for processes of their own name show that there are too few CPUs, not a culprit.

    Args:
        held: All such waits.
        families: Groups of each process.
        times: Time of the calls that are shown, by process.
    """
    charges: Counter[Key] = Counter()
    waits: dict[Key, list[Held]] = defaultdict(list)
    for one in held:
        if one.holder[1] != one.victim[1] and one.holder[1] not in _OURS:
            charges[one.holder] += one.ns
            waits[one.holder].append(one)
    candidates = []
    for of_level in grouped(charges, families, times).values():
        for group in of_level[:1]:
            hurt = [
                one
                for key in group.members
                for one in waits.get(key, ())
                if one.victim[0] not in group.pids
            ]
            candidates.append((group, hurt))
    chosen = narrowest((group, sum(one.ns for one in hurt)) for group, hurt in candidates)
    for group, hurt in candidates:
        if group is chosen and hurt:
            return _holder(group, hurt, times)
    return None


def _holder(group: Group, hurt: Iterable[Held], times: Mapping[Key, int]) -> CpuHolder:
    by_call: Counter[str] = Counter()
    for one in sorted(hurt, key=lambda one: one.syscall):
        by_call[one.syscall] += one.ns
    ((syscall, syscall_ns),) = by_call.most_common(1)
    outside = sum(ns for (pid, _), ns in times.items() if pid not in group.pids)
    return CpuHolder(group.words, group.name, by_call.total(), syscall, syscall_ns, outside)
