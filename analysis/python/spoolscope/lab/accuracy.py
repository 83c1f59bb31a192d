"""Compare what an explanation says with what was injected: the truth is the injector's own log."""

import math
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

import duckdb

Spans = list[tuple[int, int]]
"""Disjoint stretches of time, in order: begin and end in nanoseconds since the epoch."""

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


@dataclass
class Call:
    """One call: when, how long, its time by cause, and piece by piece (begin, end, cause)."""

    pid: int
    syscall: str
    begin_ns: int
    end_ns: int
    causes: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    pieces: list[tuple[int, int, str]] = field(default_factory=list)

    @property
    def top(self) -> str:
        """The cause that took most of it."""
        return max(self.causes, key=lambda cause: self.causes[cause])


@dataclass(frozen=True)
class Score:
    """How true an explanation is.

    Attributes:
        n_calls: Calls of the victims.
        n_judged: Of the slowest 1 % of them, those that the fault held for most of their time.
        n_right: Of these, those whose top cause is the injected one.
        wrong: Their other top causes, by number.
        injected_ns: Time for which the fault was at work in calls that it held for most of theirs.
        found_ns: What of it the explanation gives the injected cause.
        beyond_ns: What it gives that cause in these calls before and after the fault was at work.
    """

    n_calls: int
    n_judged: int
    n_right: int
    wrong: dict[str, int]
    injected_ns: int
    found_ns: int
    beyond_ns: int

    @property
    def right(self) -> float:
        """Share of right top causes, 0 to 1; NaN if nothing was slow because of the fault."""
        return self.n_right / self.n_judged if self.n_judged else math.nan

    @property
    def recovered(self) -> float:
        """Share of the injected time that has the right name; NaN if none was injected."""
        return self.found_ns / self.injected_ns if self.injected_ns else math.nan

    @property
    def beyond(self) -> float:
        """Time wrongly given the name, over the time injected; NaN if none was."""
        return self.beyond_ns / self.injected_ns if self.injected_ns else math.nan


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
    """Return every call with its time by cause (needs ``named_waits``)."""
    rows = con.execute("SELECT pid, tid, seq, ts_ns, dur_ns, syscall FROM syscalls").fetchall()
    calls = {
        (pid, tid, seq, begin): Call(pid, syscall, begin, begin + dur)
        for pid, tid, seq, begin, dur, syscall in rows
    }
    for pid, tid, seq, call_ns, begin, dur, cause in con.execute(_PIECES).fetchall():
        call = calls[pid, tid, seq, call_ns]
        call.causes[cause] += dur
        call.pieces.append((begin, begin + dur, cause))
    for call in calls.values():
        call.causes["cpu"] = call.end_ns - call.begin_ns - sum(call.causes.values())
    return list(calls.values())


def score(calls: Sequence[Call], truth: Spans, right: AbstractSet[str]) -> Score:
    """Judge the calls of the victims.

    Args:
        calls: Their calls.
        truth: When the fault was at work.
        right: The causes that name it.
    """
    held = [(call, overlap_ns(call.begin_ns, call.end_ns, truth)) for call in calls]
    held.sort(key=lambda pair: pair[0].begin_ns - pair[0].end_ns)
    slowest = held[: math.ceil(len(held) / 100)]
    judged = [call for call, ns in slowest if 2 * ns > call.end_ns - call.begin_ns]
    tops = [call.top for call in judged]
    mostly = [(call, ns) for call, ns in held if 2 * ns > call.end_ns - call.begin_ns]
    named = [
        (end - begin, overlap_ns(begin, end, truth))
        for call, _ in mostly
        for begin, end, cause in call.pieces
        if cause in right
    ]
    return Score(
        n_calls=len(calls),
        n_judged=len(judged),
        n_right=sum(top in right for top in tops),
        wrong={top: tops.count(top) for top in sorted(set(tops) - right)},
        injected_ns=sum(ns for _, ns in mostly),
        found_ns=sum(within for _, within in named),
        beyond_ns=sum(length - within for length, within in named),
    )
