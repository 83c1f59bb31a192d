"""Compare what an explanation says with what was injected: the truth is the injector's own log."""

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
"""Disjoint stretches of time, in order: begin and end in nanoseconds since the epoch."""

NO_CPU = MACHINE.keys() - {"cpu"}
"""Causes of a call that could run, and had no CPU."""

# What calls spent, piece by piece; what is left of a call it ran on a CPU.
_PIECES = """
SELECT pid, tid, seq, call_ns, ts_ns, dur_ns, cause FROM named_waits
UNION ALL
SELECT c.pid, c.tid, c.seq, c.ts_ns, s.ts_ns, s.dur_ns,
    CASE s.state WHEN 'runq' THEN 'runq' ELSE 'preempt' END
FROM segments s JOIN syscalls c ON c.tid = s.tid AND c.seq = s.seq AND c.pid = s.pid
    AND s.ts_ns BETWEEN c.ts_ns AND c.ts_ns + c.dur_ns
WHERE s.state != 'blocked'
"""


# Every edge with the call that its chain begins at; ``hop`` 1 are the call's own.
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
    """One call: when, how long, its time by cause, and piece by piece (begin, end, cause).

    Attributes:
        blamed: Time by the process that kept it waiting.
        behind: What these processes waited for at that time, and those that kept them waiting.
        behind_pids: Who kept them waiting.
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
        """How long it took."""
        return self.end_ns - self.begin_ns

    @property
    def top(self) -> str:
        """The cause that took most of it."""
        return _largest(self.causes)

    def direct(self, causes: AbstractSet[str]) -> Spans:
        """When it waited for one of some causes itself."""
        return joined((begin, end) for begin, end, cause in self.pieces if cause in causes)

    def led(self, causes: AbstractSet[str]) -> Spans:
        """When it did, or those did for whom it waited at that very time."""
        behind = ((begin, end) for begin, end, cause in self.behind if cause in causes)
        return joined((*self.direct(causes), *behind))

    def mostly(self, causes: AbstractSet[str]) -> bool:
        """Tell whether ``led(causes)`` is longer than what any other cause has beside it."""
        led = self.led(causes)
        rest = {cause: ns for cause, ns in self.causes.items() if cause not in causes}
        for begin, end, cause in self.pieces:
            if cause in rest:
                rest[cause] -= overlap_ns(begin, end, led)
        return sum(end - begin for begin, end in led) > max(rest.values(), default=0)

    def names(self, culprits: AbstractSet[int]) -> bool:
        """Tell whether most of it is charged to a culprit, or to who waited for a culprit."""
        return bool({_largest(self.blamed, -1), _largest(self.behind_pids, -1)} & culprits)


def _largest(sizes: dict[_T, int], *default: _T) -> _T:
    return max(sizes, key=lambda one: sizes[one]) if sizes or not default else default[0]


@dataclass(frozen=True)
class Score:
    """How true an explanation is.

    Attributes:
        n_calls: Calls of the victims.
        n_judged: As many as 1 % of them, or fewer if there are not so many: the slowest of those
            that the fault held for most of their time, and that had a CPU when they could run.
        n_robbed: Calls as slow that the fault held, too, and that had no CPU for longer than
            anything else took: that delay is real, and nobody injected it.
        n_right: Of those judged, those for whose largest part the injected cause is named, for the
            call itself or for those whom it waited for at that time.
        wrong: Top causes of the others, by number.
        n_direct: Those whose top cause is the injected one.
        n_named: Of these, those charged to a culprit; None if there is no culprit.
        injected_ns: Time for which the fault was at work in calls that it held for most of theirs,
            without those robbed.
        found_ns: For what of it the explanation names the injected cause as above.
        direct_ns: What of it has that cause itself.
        typical: The share of it that is so named in the median call; NaN if none was injected.
        beyond_ns: For what else of these calls it names that cause as above: before and after the
            fault was at work.
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
        """Share of the injected time that is named right; NaN if none was injected."""
        return self._of_injected(self.found_ns)

    @property
    def directly(self) -> float:
        """Share of the injected time that has the right cause itself; NaN as above."""
        return self._of_injected(self.direct_ns)

    @property
    def beyond(self) -> float:
        """Time wrongly given the name, over the time injected; NaN if none was."""
        return self._of_injected(self.beyond_ns)

    def _of_injected(self, ns: int) -> float:
        return ns / self.injected_ns if self.injected_ns else math.nan

    def _share(self, n: int) -> float:
        return n / self.n_judged if self.n_judged else math.nan


def joined(spans: Iterable[tuple[int, int]]) -> Spans:
    """Return the union of some stretches of time."""
    union: Spans = []
    for begin, end in sorted(spans):
        if union and begin <= union[-1][1]:
            union[-1] = union[-1][0], max(union[-1][1], end)
        else:
            union.append((begin, end))
    return union


def common(one: Spans, other: Spans) -> Spans:
    """Return the stretches that lie in both."""
    pairs = (
        (max(begin, a), min(end, b)) for begin, end in one for a, b in _near(begin, end, other)
    )
    return joined((begin, end) for begin, end in pairs if begin < end)


def overlap_ns(begin: int, end: int, spans: Spans) -> int:
    """Return how much of one stretch the disjoint ``spans`` cover."""
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
    # Sequence numbers of a thread go on when its number is given out again: no time is needed.
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
        truth: When the fault was at work.
        right: The causes that name it.
        culprits: The processes that brought it about; empty: there are none.
        least_ns: The fault holds a call if it is at work for most of it, and for so long: shorter
            calls may just run while the disk is slow for somebody else.
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
