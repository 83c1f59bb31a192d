"""Comparison of an explanation with the injected fault; the truth is the injector's own log."""

import math
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from statistics import median
from typing import TypeVar

import duckdb

from spoolscope.analysis.causes import MACHINE

_T = TypeVar("_T", str, int)
Spans = list[tuple[int, int]]
"""Disjoint intervals in order: begin and end in nanoseconds since the epoch."""

NO_CPU = MACHINE.keys() - {"cpu"}
"""Causes of a call that was ready to run, but had no CPU."""

# Waits of calls, piece by piece; the rest of a call was on a CPU.
_PIECES = """
SELECT pid, tid, seq, call_ns, ts_ns, dur_ns, cause FROM named_waits
UNION ALL
SELECT c.pid, c.tid, c.seq, c.ts_ns, s.ts_ns, s.dur_ns,
    CASE s.state WHEN 'runq' THEN 'runq' ELSE 'preempt' END
FROM segments s JOIN syscalls c ON c.tid = s.tid AND c.seq = s.seq AND c.pid = s.pid
    AND s.ts_ns BETWEEN c.ts_ns AND c.ts_ns + c.dur_ns
WHERE s.state != 'blocked'
"""


# Every edge with the call at the begin of its chain; ``hop`` 1 are the call's own edges.
_CHAINS = """
WITH RECURSIVE chains AS (
    SELECT edge_id, victim_pid AS pid, victim_tid AS tid, victim_seq AS seq, hop, culprit_pid,
        cause, from_ns, to_ns FROM edges WHERE hop = 1
    UNION ALL
    SELECT e.edge_id, c.pid, c.tid, c.seq, e.hop, e.culprit_pid, e.cause, e.from_ns, e.to_ns
    FROM edges e JOIN chains c ON e.parent_id = c.edge_id
)
SELECT pid, tid, seq, hop, culprit_pid, cause, from_ns, to_ns FROM chains
"""


@dataclass
class Call:
    """One call: begin, length, time by cause, and pieces (begin, end, cause).

    Attributes:
        blamed: Time by the culprit process.
        behind: Waits of these culprits at that time, and of the culprits of those, by cause.
        behind_pids: The further culprits.
    """

    pid: int
    syscall: str
    begin_ns: int
    end_ns: int
    causes: dict[str, int] = field(default_factory=Counter)
    pieces: list[tuple[int, int, str]] = field(default_factory=list)
    blamed: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    behind: list[tuple[int, int, str]] = field(default_factory=list)
    behind_pids: dict[int, int] = field(default_factory=lambda: defaultdict(int))

    @property
    def dur_ns(self) -> int:
        """Length of the call."""
        return self.end_ns - self.begin_ns

    @property
    def top(self) -> str:
        """The cause that took most of it."""
        return _largest(self.causes)

    def direct(self, causes: AbstractSet[str]) -> Spans:
        """Intervals in which the call itself waited for one of the causes."""
        return joined((begin, end) for begin, end, cause in self.pieces if cause in causes)

    def led(self, causes: AbstractSet[str]) -> Spans:
        """Intervals in which it did so, or its culprits did at that time."""
        behind = ((begin, end) for begin, end, cause in self.behind if cause in causes)
        return joined((*self.direct(causes), *behind))

    def mostly(self, causes: AbstractSet[str]) -> bool:
        """Return True if ``led(causes)`` is longer than any other cause outside it."""
        led = self.led(causes)
        rest = {cause: ns for cause, ns in self.causes.items() if cause not in causes}
        for begin, end, cause in self.pieces:
            if cause in rest:
                rest[cause] -= overlap_ns(begin, end, led)
        return sum(end - begin for begin, end in led) > max(rest.values(), default=0)

    def names(self, culprits: AbstractSet[int]) -> bool:
        """Return True if most of the call is charged to a culprit, or to a process behind one."""
        return bool({_largest(self.blamed, -1), _largest(self.behind_pids, -1)} & culprits)


def _largest(sizes: dict[_T, int], *default: _T) -> _T:
    return max(sizes, key=lambda one: sizes[one]) if sizes or not default else default[0]


@dataclass(frozen=True)
class Score:
    """Accuracy of an explanation.

    Attributes:
        n_calls: Calls of the victims.
        n_judged: Number of judged calls, at most 1 % of all: the slowest ones that the fault held
            for most of their time, and that had a CPU when they were ready.
        n_robbed: Equally slow calls held by the fault whose longest part was without a CPU, as the
            host or others had it: that delay is real, but not injected.
        n_right: Judged calls whose largest part has the injected cause, for the call itself or for
            its culprits at that time.
        wrong: Top causes of the other judged calls, by number.
        n_direct: Judged calls whose own top cause is the injected one.
        n_named: Number of judged calls charged to a culprit; None if there is no culprit.
        injected_ns: Time of the fault in calls that it held for most of their time, without robbed
            ones.
        found_ns: The part of it with the injected cause, as in n_right.
        direct_ns: The part of it with that cause for the call itself.
        typical: Median over these calls of direct_ns by injected time; NaN if none was injected.
        beyond_ns: Time of these calls with that cause, as in n_right, while no fault was at work.
    """

    n_calls: int
    n_judged: int
    n_robbed: int
    n_right: int
    wrong: dict[str, int]
    n_direct: int
    n_named: int | None
    injected_ns: int
    found_ns: int
    direct_ns: int
    typical: float
    beyond_ns: int

    @property
    def right(self) -> float:
        """Share of right answers, 0 to 1; NaN if nothing was slow because of the fault."""
        return self._share(self.n_right)

    @property
    def direct(self) -> float:
        """Share of right top causes, 0 to 1; NaN as above."""
        return self._share(self.n_direct)

    @property
    def culprit(self) -> float:
        """Share charged to a culprit, 0 to 1; NaN as above, and without a culprit."""
        return math.nan if self.n_named is None else self._share(self.n_named)

    @property
    def recovered(self) -> float:
        """Share of the injected time that was found; NaN if none was injected."""
        return self._of_injected(self.found_ns)

    @property
    def directly(self) -> float:
        """Share of the injected time with the right cause for the call itself; NaN as above."""
        return self._of_injected(self.direct_ns)

    @property
    def beyond(self) -> float:
        """Time with the injected cause outside the fault, by the injected time; NaN if none."""
        return self._of_injected(self.beyond_ns)

    def _of_injected(self, ns: int) -> float:
        return ns / self.injected_ns if self.injected_ns else math.nan

    def _share(self, n: int) -> float:
        return n / self.n_judged if self.n_judged else math.nan


def joined(spans: Iterable[tuple[int, int]]) -> Spans:
    """Return the union of some intervals."""
    union: Spans = []
    for begin, end in sorted(spans):
        if union and begin <= union[-1][1]:
            union[-1] = union[-1][0], max(union[-1][1], end)
        else:
            union.append((begin, end))
    return union


def common(one: Spans, other: Spans) -> Spans:
    """Return the intersection."""
    pairs = (
        (max(begin, a), min(end, b)) for begin, end in one for a, b in _near(begin, end, other)
    )
    return joined((begin, end) for begin, end in pairs if begin < end)


def overlap_ns(begin: int, end: int, spans: Spans) -> int:
    """Return how much of one interval the disjoint ``spans`` cover."""
    return sum(max(0, min(end, b) - max(begin, a)) for a, b in _near(begin, end, spans))


def _near(begin: int, end: int, spans: Spans) -> Spans:
    first = max(0, bisect_left(spans, (begin, begin)) - 1)
    return spans[first : bisect_left(spans, (end, end))]


def read_calls(con: duckdb.DuckDBPyConnection) -> list[Call]:
    """Return every call with its time by cause and culprit (needs ``named_waits``, ``edges``)."""
    rows = con.execute(
        "SELECT pid, tid, seq, ts_ns, dur_ns, syscall, coalesce(stolen_ns, 0) FROM syscalls"
    ).fetchall()
    calls = {
        (pid, tid, seq, begin): Call(pid, syscall, begin, begin + dur, Counter(steal=stolen))
        for pid, tid, seq, begin, dur, syscall, stolen in rows
    }
    for pid, tid, seq, call_ns, begin, dur, cause in con.execute(_PIECES).fetchall():
        call = calls[pid, tid, seq, call_ns]
        call.causes[cause] += dur
        call.pieces.append((begin, begin + dur, cause))
    for call in calls.values():
        call.causes["cpu"] = call.dur_ns - sum(call.causes.values())
    _blame(con, calls)
    return list(calls.values())


def _blame(con: duckdb.DuckDBPyConnection, calls: dict[tuple[int, int, int, int], Call]) -> None:
    # Sequence numbers go on when a thread id is reused, so the time is not needed in the key.
    by_seq = {(pid, tid, seq): call for (pid, tid, seq, _), call in calls.items()}
    for pid, tid, seq, hop, culprit, cause, begin, end in con.execute(_CHAINS).fetchall():
        call = by_seq[pid, tid, seq]
        if culprit is not None:
            (call.blamed if hop == 1 else call.behind_pids)[culprit] += end - begin
        if hop > 1:
            call.behind.append((begin, end, cause))


def score(
    calls: Sequence[Call],
    truth: Spans,
    right: AbstractSet[str],
    culprits: AbstractSet[int] = frozenset(),
    least_ns: int = 0,
) -> Score:
    """Judge the calls of the victims.

    Args:
        calls: Their calls.
        truth: Intervals in which the fault was at work.
        right: The right causes for it.
        culprits: The processes that caused it; empty if there are none.
        least_ns: The fault holds a call if it is at work for most of it, and for at least this
            long: shorter calls may only coincide with a delay for another process.
    """
    spent = [(call, overlap_ns(call.begin_ns, call.end_ns, truth)) for call in calls]
    caught = [(call, ns) for call, ns in spent if 2 * ns > call.dur_ns and ns >= least_ns]
    mostly = [(call, ns) for call, ns in caught if call.top not in NO_CPU - right]
    held = sorted((call for call, _ in mostly), key=lambda call: -call.dur_ns)
    judged = held[: math.ceil(len(calls) / 100)]
    slow_ns = min((call.dur_ns for call in judged), default=0)
    robbed = [call for call, _ in caught if call.top in NO_CPU - right and call.dur_ns >= slow_ns]
    wrong = [call.top for call in judged if not call.mostly(right)]
    led = [span for call, _ in mostly for span in call.led(right)]
    found_ns = sum(overlap_ns(begin, end, truth) for begin, end in led)
    direct_ns = [sum(overlap_ns(*span, truth) for span in call.direct(right)) for call, _ in mostly]
    shares = [found / ns for found, (_, ns) in zip(direct_ns, mostly, strict=True)]
    return Score(
        n_calls=len(calls),
        n_judged=len(judged),
        n_robbed=len(robbed),
        n_right=len(judged) - len(wrong),
        wrong={top: wrong.count(top) for top in sorted(set(wrong))},
        n_direct=sum(call.top in right for call in judged),
        n_named=sum(call.names(culprits) for call in judged) if culprits else None,
        injected_ns=sum(ns for _, ns in mostly),
        found_ns=found_ns,
        direct_ns=sum(direct_ns),
        typical=median(shares) if shares else math.nan,
        beyond_ns=sum(end - begin for begin, end in led) - found_ns,
    )
