"""Differences between two recordings by call, cause, program and kind of file.

Calls are compared stratum by stratum: the same program, the same call, the same class of file.
The time of a call is then a mean over the strata, weighted as the *first* recording has them, on
both sides (direct standardisation): a change of the mix of calls does not move it. Parts by cause,
call, program and class add up to the whole. The total time is exactly the product of a factor for
the number of calls, one for the mix, and this one for the cost of a call.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from spoolscope.analysis.recordings.resampling import Judge, Moved
from spoolscope.analysis.recordings.surroundings import Difference, names_match, surroundings
from spoolscope.analysis.recordings.windows import (
    COST_CAUSES,
    MAILDIR,
    QUEUE,
    Strata,
    Stratum,
    Windows,
    read_windows,
)
from spoolscope.traces.phases import Progress, unseen
from spoolscope.traces.trace import Trace

LEAST_CALLS = 10
"""Least number of calls of a compared stratum, on each side."""
LEAST_COVERED = 0.5
"""Least share of the time in common strata for which programs are kept separate."""
LEAST_DELIVERIES = 20
SIDES = ("reference", "candidate")
LISTED_BOXES = 20
SECONDS = "seconds"


@dataclass(frozen=True)
class Part:
    """A part of the time of a mean call of the first recording's mix.

    Attributes:
        name: Name of the cause, call, program or class.
        calls: Number of its calls in each recording; 0 for a cause.
        moved: Its time in the mean call, ns; the differences of parts add up to that of all calls.
    """

    name: str
    calls: tuple[int, int]
    moved: Moved


@dataclass(frozen=True)
class Left:
    """Calls of a recording without enough counterparts in the other: their share of its time."""

    stratum: Stratum
    calls: int
    share: float


@dataclass(frozen=True)
class Load:
    """Difference of the loads.

    Attributes:
        seconds: Length of each recording; calls likewise.
        rate: Calls a second.
        mix: The part of the calls that is of another kind than in the other recording, 0 to 1.
        covered_calls: The part of each recording's calls in strata that both have.
        covered_time: The part of each recording's time, likewise.
        left: The largest strata of each that are not compared.
        deliveries: Number of each; counted_as names what counts, None if neither shows any.
    """

    seconds: tuple[float, float]
    calls: tuple[int, int]
    rate: Moved
    mix: float
    covered_calls: tuple[float, float]
    covered_time: tuple[float, float]
    left: tuple[list[Left], list[Left]]
    deliveries: tuple[int, int]
    counted_as: str | None


@dataclass(frozen=True)
class Between:
    """Two recordings compared.

    Attributes:
        reference: The first, in windows of time; candidate the second.
        judge: Maker of the intervals.
        load: Difference of the loads.
        cost: Time of a call of the first recording's mix, ns: the primary metric.
        total: Time in calls a second, ns; it is load.rate times mix_effect times cost.
        mix_effect: Effect of the mix, and of calls that only one has, on the time of a call.
        parts: By "cause", "call", "program" and "class", the largest difference first.
        boxes: Time of calls by mailbox, ns; None if names cannot be matched.
        per_delivery: Amount per delivery, by the counted thing; empty if unknown.
        differences: Other differences.
    """

    reference: Windows
    candidate: Windows
    judge: Judge
    load: Load
    cost: Moved
    total: Moved
    mix_effect: float
    parts: dict[str, list[Part]]
    boxes: list[Part] | None
    per_delivery: dict[str, Moved]
    differences: list[Difference]
    strata: list[Stratum]

    def ratio(self, above: str, below: str) -> Moved:
        """Judge the sum ``above`` for each of ``below``, e.g. commits by seconds."""
        return ratio(self.judge, self.reference, self.candidate, above, below)

    def part(self, chosen: Callable[[Stratum], bool], cause: str | None = None) -> Moved:
        """Judge the time of the calls in some strata; of one cause, if it is given."""
        return _Costs(self.judge, self.reference, self.candidate, self.strata).mean(chosen, cause)

    def covered_time(self, calls: Sequence[str]) -> float:
        """Return the least part of a recording's time in some calls, or all, that is compared."""
        return _least_time(self.reference, self.candidate, self.strata, calls)

    def lengths(self, calls: Sequence[str]) -> tuple[tuple[np.ndarray, np.ndarray], ...]:
        """Return window and length of calls of each recording; of all calls if none are named."""
        return tuple(side.lengths(calls) for side in (self.reference, self.candidate))


COUNTED = {
    "calls": "calls",
    "time_ns": "time in calls",
    "syncs": "fsyncs and other syncs",
    "commits": "commits",
    "requests": "block requests",
    "written_bytes": "bytes written to the disk",
    "flushes": "cache flushes",
}
"""Sums that are divided by the number of deliveries."""


def compare_recordings(reference: Trace, candidate: Trace, progress: Progress = unseen) -> Between:
    """Compare a recording with an earlier one.

    Args:
        reference: The first recording, whose mix of calls counts.
        candidate: The second.
        progress: Called with a sentence and the fraction done.

    Raises:
        SpoolscopeError: one is damaged, or holds no call to compare.
    """
    matched = names_match(reference, candidate)
    sides = []
    for number, trace in enumerate((reference, candidate)):
        progress(f"Splitting the time of {trace.path.name}", number / 3)
        sides.append(read_windows(trace, keys_match=matched))
    progress("Drawing windows again", 2 / 3)
    ours, theirs = sides
    judge = Judge(ours.n, theirs.n)
    both = _both(ours.strata, theirs.strata)
    if _least_time(ours, theirs, both) < LEAST_COVERED:  # its programs may have other names
        ours, theirs = (replace(s, strata=s.strata.of_any_program()) for s in sides)
        both = _both(ours.strata, theirs.strata)
    costs = _Costs(judge, ours, theirs, both)
    cost = costs.mean(lambda _stratum: True)
    raw = ratio(judge, ours, theirs, "time_ns", "calls")
    total = ratio(judge, ours, theirs, "time_ns", SECONDS)
    load = _load(judge, ours, theirs, both)
    has_rates = load.counted_as is not None and min(load.deliveries) >= LEAST_DELIVERIES
    return Between(
        reference=ours,
        candidate=theirs,
        judge=judge,
        load=load,
        cost=cost,
        total=total,
        mix_effect=raw.ratio / cost.ratio,
        parts=_parts(costs),
        boxes=_boxes(judge, ours, theirs) if matched else None,
        per_delivery={
            what: ratio(judge, ours, theirs, what, str(load.counted_as)) for what in COUNTED
        }
        if has_rates
        else {},
        differences=surroundings(reference, candidate),
        strata=both,
    )


def ratio(judge: Judge, ours: Windows, theirs: Windows, above: str, below: str) -> Moved:
    """Judge the sum of one thing by that of another."""
    sums = [np.column_stack([_counted(s, above), _counted(s, below)]) for s in (ours, theirs)]
    return judge.of_sums(_divided, (sums[0], sums[1]))


def _counted(side: Windows, what: str) -> np.ndarray:
    if what == SECONDS:
        return side.seconds
    return np.asarray(side.deliveries[what] if what in side.deliveries else side.sums[what])


def _divided(drawn: np.ndarray) -> np.ndarray:
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(drawn[:, 0] / drawn[:, 1])


def _both(ours: Strata, theirs: Strata) -> list[Stratum]:
    """Return the strata that have enough calls on both sides."""
    enough = [
        {name for name, n in zip(s.names, s.n.sum(axis=1), strict=True) if n >= LEAST_CALLS}
        for s in (ours, theirs)
    ]
    return [name for name in ours.names if name in enough[0] & enough[1]]


def _least_time(
    ours: Windows, theirs: Windows, both: list[Stratum], calls: Sequence[str] = ()
) -> float:
    """Return the part of the time that is in these strata, of the recording with the least.

    If calls are named, only their time counts.
    """
    kept = set(both)
    shares = []
    for side in (ours, theirs):
        ns = side.strata.ns.sum(axis=(1, 2))
        names = side.strata.names
        counts = np.array([not calls or name[1] in calls for name in names], bool)
        inside = np.array([name in kept for name in names], bool)
        shares.append(float(ns[inside & counts].sum() / max(ns[counts].sum(), 1)))
    return min(shares)


class _Costs:
    """The time of a mean call of the first recording's mix, stratum by stratum."""

    def __init__(self, judge: Judge, ours: Windows, theirs: Windows, both: list[Stratum]) -> None:
        self._judge, self.names = judge, both
        self.sides = (ours.strata.of(both), theirs.strata.of(both))
        self._whole = (judge.reference.whole, judge.candidate.whole)
        self._n = [whole @ s.n.T for whole, s in zip(self._whole, self.sides, strict=True)]
        mix = self._n[0]
        self._mix = mix / np.maximum(mix.sum(axis=1, keepdims=True), 1)

    def mean(self, chosen: Callable[[Stratum], bool], cause: str | None = None) -> Moved:
        """Judge the part of some strata, and of one cause, in the mean call."""
        rows = [place for place, name in enumerate(self.names) if chosen(name)]
        of = slice(None) if cause is None else [COST_CAUSES.index(cause)]
        values = []
        for whole, side, n in zip(self._whole, self.sides, self._n, strict=True):
            ns = whole @ side.ns[rows][:, :, of].sum(axis=2).T
            calls = n[:, rows]
            # In a draw without a call of a stratum, a call costs what it costs on the whole.
            usual = ns[0] / np.maximum(calls[0], 1)
            each = np.where(calls > 0, ns / np.maximum(calls, 1), usual)
            values.append((self._mix[:, rows] * each).sum(axis=1))
        return self._judge.judge(values[0], values[1])


def _parts(costs: _Costs) -> dict[str, list[Part]]:
    counts = [side.n.sum(axis=1) for side in costs.sides]
    found = {"cause": [Part(c, (0, 0), costs.mean(lambda _s: True, c)) for c in COST_CAUSES]}
    for place, kind in ((1, "call"), (0, "program"), (2, "class")):
        names = dict.fromkeys(name[place] for name in costs.names)
        found[kind] = [
            Part(name, _calls(costs, counts, place, name), costs.mean(_has(place, name)))
            for name in names
        ]
    return {
        kind: sorted(
            (part for part in parts if part.moved.reference or part.moved.candidate),
            key=lambda part: (-abs(part.moved.difference), part.name),
        )
        for kind, parts in found.items()
    }


def _has(place: int, name: str) -> Callable[[Stratum], bool]:
    return lambda stratum: stratum[place] == name


def _calls(costs: _Costs, counts: list[np.ndarray], place: int, name: str) -> tuple[int, int]:
    rows = [at for at, stratum in enumerate(costs.names) if stratum[place] == name]
    return int(counts[0][rows].sum()), int(counts[1][rows].sum())


def _load(judge: Judge, ours: Windows, theirs: Windows, both: list[Stratum]) -> Load:
    kept = set(both)
    calls, covered, time, left = [], [], [], []
    for side in (ours, theirs):
        n, ns = side.strata.n.sum(axis=1), side.strata.ns.sum(axis=(1, 2))
        inside = np.array([name in kept for name in side.strata.names])
        calls.append(int(n.sum()))
        covered.append(float(n[inside].sum() / max(n.sum(), 1)))
        time.append(float(ns[inside].sum() / max(ns.sum(), 1)))
        order = sorted(np.flatnonzero(~inside).tolist(), key=lambda at: -ns[at])
        left.append(
            [
                Left(side.strata.names[at], int(n[at]), float(ns[at] / max(ns.sum(), 1)))
                for at in order[:5]
            ]
        )
    shares = [_shares(side.strata) for side in (ours, theirs)]
    names = shares[0].keys() | shares[1].keys()
    mix = sum(abs(shares[0].get(name, 0.0) - shares[1].get(name, 0.0)) for name in names) / 2
    counted_as = next((w for w in (MAILDIR, QUEUE) if _all_have(ours, theirs, w)), None)
    deliveries = [
        int(side.deliveries[counted_as].sum()) if counted_as else 0 for side in (ours, theirs)
    ]
    return Load(
        seconds=(float(ours.seconds.sum()), float(theirs.seconds.sum())),
        calls=(calls[0], calls[1]),
        rate=ratio(judge, ours, theirs, "calls", SECONDS),
        mix=mix,
        covered_calls=(covered[0], covered[1]),
        covered_time=(time[0], time[1]),
        left=(left[0], left[1]),
        deliveries=(deliveries[0], deliveries[1]),
        counted_as=counted_as,
    )


def _all_have(ours: Windows, theirs: Windows, what: str) -> bool:
    return all(side.deliveries[what].sum() > 0 for side in (ours, theirs))


def _shares(strata: Strata) -> dict[Stratum, float]:
    n = strata.n.sum(axis=1)
    return dict(zip(strata.names, (n / max(n.sum(), 1)).tolist(), strict=True))


def _boxes(judge: Judge, ours: Windows, theirs: Windows) -> list[Part]:
    """Return the common mailboxes whose time a second changed most."""

    def time(side: Windows, box: str) -> float:
        return float(side.boxes[box][:, 1].sum() / side.seconds.sum())

    shared = [
        box
        for box in ours.boxes
        if box in theirs.boxes
        and min(side.boxes[box][:, 0].sum() for side in (ours, theirs)) >= LEAST_CALLS
    ]
    shared.sort(key=lambda box: -abs(time(theirs, box) - time(ours, box)))
    found = []
    for box in shared[:LISTED_BOXES]:
        columns = [side.boxes[box][:, ::-1] for side in (ours, theirs)]
        calls = [int(side.boxes[box][:, 0].sum()) for side in (ours, theirs)]
        moved = judge.of_sums(_divided, (columns[0], columns[1]))
        found.append(Part(box, (calls[0], calls[1]), moved))
    return found


def plain(value: Any) -> dict[str, Any]:
    """Return a dataclass as JSON has it: pairs by side, strata by name, unknown numbers null."""
    return {key: _known(one) for key, one in asdict(value).items()}


def _known(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _known(one) for key, one in value.items()}
    if isinstance(value, tuple):
        names = SIDES if len(value) == len(SIDES) else ("program", "call", "class")
        return dict(zip(names, map(_known, value), strict=True))
    if isinstance(value, list):
        return [_known(one) for one in value]
    return None if isinstance(value, float) and not np.isfinite(value) else value
