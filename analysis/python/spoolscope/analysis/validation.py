"""Test of the ranking: recordings of one service on several filesystems, and replays of one.

The calls of two recordings are different ones, so all is divided by their number: the time in calls
is that of a call, on both sides. The replays are of the first recording, over the same calls on
every candidate. File locking is left out everywhere.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from typing import Any

import numpy as np
import pyarrow as pa

from spoolscope.analysis.candidate_runs import Candidate
from spoolscope.analysis.causes import CAUSES, charged
from spoolscope.analysis.compare import Comparison
from spoolscope.analysis.explain import explain
from spoolscope.analysis.latency import IN_FLIGHT, SYSCALL_CLASSES
from spoolscope.analysis.metrics import (
    BLOCK_NS,
    MAX_BLOCKS,
    METRICS,
    PRIMARY,
    WAITING,
    compared_calls,
    measure,
)
from spoolscope.analysis.outcomes import Replay
from spoolscope.analysis.recordings.resampling import Sums, ratio_of_means
from spoolscope.analysis.stats import Estimate, kendall_tau, paired
from spoolscope.traces.errors import USAGE, SpoolscopeError
from spoolscope.traces.trace import Trace
from spoolscope.traces.typed_json import without_nan

LEAST_SHARE = 0.05
"""Least difference in a cause's time per call that is listed, as a part of all causes' time."""

Values = Mapping[str, float | None]


@dataclass(frozen=True)
class Ratio:
    """One metric of a filesystem by that of another, recorded and replayed."""

    filesystem: str
    reference: str
    recorded: Estimate
    replayed: Estimate

    @property
    def apart(self) -> float:
        """The replayed ratio by the recorded one, less 1; nan if one is unknown."""
        return self.replayed.ratio / self.recorded.ratio - 1

    @property
    def sides(self) -> tuple[int, int]:
        """The side of 1 on which each interval lies, -1 or 1; 0 if it holds 1 or is unknown."""
        return _side(self.recorded), _side(self.replayed)

    @property
    def is_sure(self) -> bool:
        """True if both show that the same one is faster."""
        ours, theirs = self.sides
        return ours == theirs != 0

    @property
    def is_wrong(self) -> bool:
        """True if they show that different ones are faster."""
        ours, theirs = self.sides
        return ours * theirs < 0

    @property
    def names(self) -> str:
        """Both filesystems, the faster one by the recordings first."""
        order = (self.filesystem, self.reference)
        return " before ".join(order if self.recorded.ratio < 1 else order[::-1])


@dataclass(frozen=True)
class Validated:
    """One metric: its ratios, and Kendall's tau of both orders; nan where they are not known."""

    metric: str
    label: str
    ratios: list[Ratio]
    tau: float


@dataclass(frozen=True)
class OtherCause:
    """A cause with a different time in the replay; ns per call, a mean over the runs."""

    filesystem: str
    cause: str
    recorded_ns: float
    replayed_ns: float


@dataclass(frozen=True)
class Validation:
    """The answer of ``validate``.

    Attributes:
        reference: The filesystem of the replayed recording.
        recordings: Number of recordings of each filesystem; runs likewise.
        calls: Calls of each, a mean over the recordings.
        metrics: Metrics, the time of a call first; ratios to the reference.
        pairs: Each pair of filesystems, by the time of a call.
        causes: Causes that differ, the largest difference first; None if no replay was recorded.
        warnings: Sentences on what weakens the answer.
    """

    reference: str
    recordings: dict[str, int]
    runs: dict[str, int]
    calls: dict[str, float]
    metrics: list[Validated]
    pairs: list[Ratio]
    causes: list[OtherCause] | None
    warnings: list[str]

    @property
    def holds(self) -> bool | None:
        """True if all pairs that both sides decide are ordered alike; None if they decide none.

        A pair is decided where the interval of its ratio does not hold 1.
        """
        if any(pair.is_wrong for pair in self.pairs):
            return False
        return True if any(pair.is_sure for pair in self.pairs) else None

    @property
    def verdict(self) -> str:
        """The answer in two or three sentences."""
        sure = [pair for pair in self.pairs if pair.is_sure]
        wrong = [pair for pair in self.pairs if pair.is_wrong]
        alone = [sum(bool(p.sides[k] and not p.sides[1 - k]) for p in self.pairs) for k in (0, 1)]
        neither = len(self.pairs) - len(sure) - len(wrong) - sum(alone)
        of = f"of {len(self.pairs)} pairs of filesystems"
        if wrong:
            orders = ", ".join(pair.names for pair in wrong)
            said = f"The ranking does not hold. Recordings say the opposite of replays: {orders}."
            said += f" Both order {len(sure)} {of} alike."
        elif sure:
            said = (
                f"The ranking holds where it is decided: both sides order {len(sure)} {of} alike,"
            )
            said += " and none differently."
        else:
            said = f"It is not known whether the ranking holds: both sides decide none {of}."
        rest = [
            f"{n} {words}"
            for n, words in (
                (alone[0], "by recordings only"),
                (alone[1], "by replays only"),
                (neither, "by neither"),
            )
            if n
        ]
        return f"{said} Decided {', '.join(rest)}." if rest else said

    def to_json(self) -> dict[str, Any]:
        """Return the object that ``validate --json`` prints; unknown numbers are null."""
        plain = asdict(self) | {"holds": self.holds, "verdict": self.verdict}
        shown = [(plain["pairs"], self.pairs)]
        shown += [
            (one["ratios"], metric.ratios)
            for one, metric in zip(plain["metrics"], self.metrics, strict=True)
        ]
        for rows, ratios in shown:
            for row, found in zip(rows, ratios, strict=True):
                row |= {"apart": found.apart, "sure": found.is_sure}
        cleaned: dict[str, Any] = without_nan(plain)
        return cleaned


def _side(e: Estimate) -> int:
    if e.low is None or e.high is None:
        return 0
    return (e.low > 1) - (e.high < 1)


class _Recording:
    """The completed calls of a recording since its snapshot, without file locking."""

    def __init__(self, trace: Trace) -> None:
        table = trace.table("syscalls", ["syscall", "ts_ns", "dur_ns", "flags_seen"])
        names = table.column("syscall").cast(pa.string()).to_numpy(zero_copy_only=False)
        starts, took, seen = (table.column(c).to_numpy() for c in ("ts_ns", "dur_ns", "flags_seen"))
        kept = (starts >= trace.meta.get("snapshot_ns", 0)) & (seen & IN_FLIGHT == 0)
        kept &= ~np.isin(names, SYSCALL_CLASSES["lock"])
        if not kept.any():
            raise SpoolscopeError(
                f"trace {trace.path} holds no call to compare", remedy="record under load"
            )
        self._names, self.took = names[kept], took[kept]
        since = starts[kept] - starts[kept].min()
        length = max(BLOCK_NS, -(-int(since.max() + 1) // MAX_BLOCKS))
        self._windows: np.ndarray = since // length

    def by_window(self) -> Sums:
        """Return the time in calls, and their number, by second: by longer ones after 100 s."""
        return np.bincount(self._windows, weights=self.took), np.bincount(self._windows)

    def values(self) -> dict[str, float | None]:
        """Compute every metric that a recording has."""

        def of(*names: str) -> np.ndarray:
            some: np.ndarray = self.took[np.isin(self._names, names)]
            return some

        found = {name: metric.compute(self.took, of) for name, metric in METRICS.items()}
        return found | {PRIMARY: float(self.took.mean()), WAITING: None}


def validate(recordings: Mapping[str, Sequence[Trace]], found: Comparison) -> Validation:
    """Compare recordings of a service with replays of one of them.

    Args:
        recordings: Recordings by filesystem, named as candidates; the reference's first, and of
            these the replayed one first.
        found: The comparison of its replays.

    Raises:
        SpoolscopeError: there is no replay on a filesystem that was recorded, only one was
            recorded, or a recording holds nothing.
    """
    if len(recordings) < 2:
        raise SpoolscopeError(
            "recordings of one filesystem alone rank nothing",
            remedy="give --against a recording of the same service on another one; how true a"
            " replay of its own is, says 'spoolscope compare'",
            exit_code=USAGE,
        )
    chosen = {name: _candidate(found, name) for name in recordings}
    sides = _Sides(recordings, _replayed(found.replay, chosen))
    reference = next(iter(recordings))
    return Validation(
        reference=reference,
        recordings={name: len(some) for name, some in recordings.items()},
        runs={name: len(values) for name, values in sides.replayed.items()},
        calls={
            name: float(np.mean([len(one.took) for one in some]))
            for name, some in sides.read.items()
        },
        metrics=[_metric(key, reference, sides) for key in METRICS if key != WAITING],
        pairs=[sides.ratio(PRIMARY, name, other) for other, name in combinations(recordings, 2)],
        causes=_causes(recordings, chosen),
        warnings=[
            *(
                f"{t.path} is incomplete."
                for some in recordings.values()
                for t in some
                if _holes(t)
            ),
            *found.verdict.warnings,
            *found.verdict.problems,
        ],
    )


def _holes(trace: Trace) -> bool:
    return not trace.meta.get("complete", False)


def _candidate(found: Comparison, name: str) -> Candidate:
    for one in found.candidates.values():
        if one.name == name:
            return one
    same = [one for one in found.candidates.values() if one.fstype == name]
    if len(same) == 1:
        return same[0]
    many = f"several replays are on {name}" if same else f"no replay is on {name}"
    raise SpoolscopeError(
        f"{many}, which was recorded",
        remedy=f"name the recording's candidate as CANDIDATE=TRACE: {', '.join(found.candidates)}",
        exit_code=USAGE,
    )


def _replayed(replay: Replay, chosen: Mapping[str, Candidate]) -> dict[str, list[Values]]:
    """Return the metrics of each run; the time in calls is divided by the number of calls."""
    calls = compared_calls(replay)
    found: dict[str, list[Values]] = {}
    for name, candidate in chosen.items():
        for run in replay.runs:
            if run.candidate == candidate.name:
                values = measure(replay, run, calls)
                total = values[PRIMARY]
                mean = {PRIMARY: None if total is None else total / len(calls)}
                found.setdefault(name, []).append(values | mean)
    return found


class _Sides:
    """Values of every metric, of recordings and of replays, by filesystem."""

    def __init__(
        self,
        recordings: Mapping[str, Sequence[Trace]],
        replayed: Mapping[str, Sequence[Values]],
    ) -> None:
        self.read = {name: [_Recording(one) for one in some] for name, some in recordings.items()}
        self._recorded = {name: [one.values() for one in some] for name, some in self.read.items()}
        self.replayed = replayed

    def ratio(self, key: str, name: str, other: str) -> Ratio:
        """Return a metric of one filesystem by that of another.

        Recordings are paired in the given order; single ones are compared by blocks of time.
        """
        recorded = _ratio(key, self._recorded[name], self._recorded[other])
        if key == PRIMARY and min(len(self.read[name]), len(self.read[other])) == 1:
            ours, theirs = self.read[name][0], self.read[other][0]
            recorded = ratio_of_means(ours.by_window(), theirs.by_window())
        return Ratio(name, other, recorded, _ratio(key, self.replayed[name], self.replayed[other]))


def _metric(key: str, reference: str, sides: _Sides) -> Validated:
    ratios = [sides.ratio(key, name, reference) for name in sides.read if name != reference]
    known = [r for r in ratios if not math.isnan(r.apart)]
    orders = ([1.0, *(r.recorded.ratio for r in known)], [1.0, *(r.replayed.ratio for r in known)])
    label = "time of a call" if key == PRIMARY else METRICS[key].label
    return Validated(key, label, ratios, kendall_tau(*orders))


def _ratio(key: str, ours: Sequence[Values], theirs: Sequence[Values]) -> Estimate:
    n = min(len(ours), len(theirs))
    return paired([v[key] or 0.0 for v in ours[:n]], [v[key] or 0.0 for v in theirs[:n]])


def _causes(
    recordings: Mapping[str, Sequence[Trace]], chosen: Mapping[str, Candidate]
) -> list[OtherCause] | None:
    if not any(candidate.causes for candidate in chosen.values()):
        return None
    differ = []
    for name, traces in recordings.items():
        candidate = chosen[name]
        explained = [explain(trace) for trace in traces]
        calls = sum(one.n_calls for one in explained)
        then = {c: sum(one.causes.get(c, 0) for one in explained) / max(calls, 1) for c in CAUSES}
        now = {c: ns / max(candidate.fidelity.executed, 1) for c, ns in candidate.causes.items()}
        then, now = charged(then), charged(now)
        least = LEAST_SHARE * max(sum(then.values()), sum(now.values()))
        differ += [
            OtherCause(name, cause, then.get(cause, 0.0), now.get(cause, 0.0))
            for cause in {**then, **now}
            if now and abs(now.get(cause, 0.0) - then.get(cause, 0.0)) >= least
        ]
    return sorted(differ, key=lambda one: -abs(one.replayed_ns - one.recorded_ns))
