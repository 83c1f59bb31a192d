"""Test of the ranking: recordings of one service on several filesystems, and replays of one.

The calls of two recordings are different ones, so all is divided by their number: the time in calls
is that of a call, on both sides. The replays are of the first recording, over the same calls on
every candidate. File locking is left out everywhere.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from spoolscope.analysis.causes import CAUSES, charged
from spoolscope.analysis.compare import Candidate, Comparison
from spoolscope.analysis.explain import explain
from spoolscope.analysis.latency import IN_FLIGHT, SYSCALL_CLASSES
from spoolscope.analysis.metrics import BLOCK_NS, METRICS, PRIMARY, WAITING, compared_calls, measure
from spoolscope.analysis.outcomes import Replay
from spoolscope.analysis.stats import Estimate, kendall_tau, paired, unpaired_blocks
from spoolscope.traces.errors import USAGE, SpoolscopeError
from spoolscope.traces.trace import Trace

TOLD = 0.05
"""Least difference in a cause's time per call that is listed, as a part of all causes' time."""

Values = Mapping[str, float | None]


@dataclass(frozen=True)
class Ratio:
    """One metric of a filesystem by that of the reference, recorded and replayed."""

    filesystem: str
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
        metrics: Metrics, the time of a call first.
        causes: Causes that differ, the largest difference first; None if no replay was recorded.
        warnings: Sentences on what weakens the answer.
    """

    reference: str
    recordings: dict[str, int]
    runs: dict[str, int]
    calls: dict[str, float]
    metrics: list[Validated]
    causes: list[OtherCause] | None
    warnings: list[str]

    @property
    def holds(self) -> bool:
        """True if replays and recordings order the filesystems by the time of a call alike."""
        return self.metrics[0].tau == 1.0

    @property
    def verdict(self) -> str:
        """The answer in a sentence or two."""
        first = self.metrics[0]
        if math.isnan(first.tau):
            return "It is not known whether the ranking holds."
        sure = [ratio.filesystem for ratio in first.ratios if ratio.is_sure]
        how = "holds" if self.holds else "does not hold"
        if not any(r.is_wrong for r in first.ratios) and len(sure) < len(first.ratios):
            how = "seems to hold" if self.holds else "seems not to hold"
        of = f"of {', '.join(sure)}" if sure else "of none"
        certain = f"Both sides are sure of the order to {self.reference} {of}."
        return f"The ranking {how}: tau {first.tau:.2f}. {certain}"

    def to_json(self) -> dict[str, Any]:
        """Return the object that ``validate --json`` prints; unknown numbers are null."""
        plain = asdict(self) | {"holds": self.holds, "verdict": self.verdict}
        for told, metric in zip(plain["metrics"], self.metrics, strict=True):
            for ratio, found in zip(told["ratios"], metric.ratios, strict=True):
                ratio |= {"apart": found.apart, "sure": found.is_sure}
        cleaned: dict[str, Any] = _known(plain)
        return cleaned


def _side(e: Estimate) -> int:
    if e.low is None or e.high is None:
        return 0
    return (e.low > 1) - (e.high < 1)


def _known(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _known(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_known(one) for one in value]
    return None if isinstance(value, float) and math.isnan(value) else value


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
        self._blocks: np.ndarray = since // BLOCK_NS

    def by_block(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the time in calls, and their number, by second."""
        return np.bincount(self._blocks, weights=self.took), np.bincount(self._blocks)

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
    read = {name: [_Recording(trace) for trace in some] for name, some in recordings.items()}
    replayed = _replayed(found.replay, chosen)
    reference = next(iter(recordings))
    recorded = {name: [one.values() for one in some] for name, some in read.items()}
    metrics = [
        _metric(key, reference, read, recorded, replayed) for key in METRICS if key != WAITING
    ]
    return Validation(
        reference=reference,
        recordings={name: len(some) for name, some in recordings.items()},
        runs={name: len(values) for name, values in replayed.items()},
        calls={name: float(np.mean([len(r.took) for r in some])) for name, some in read.items()},
        metrics=metrics,
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
                mean = {PRIMARY: (values[PRIMARY] or 0.0) / max(len(calls), 1)}
                found.setdefault(name, []).append(values | mean)
    return found


def _metric(
    key: str,
    reference: str,
    read: Mapping[str, Sequence[_Recording]],
    recorded: Mapping[str, Sequence[Values]],
    replayed: Mapping[str, Sequence[Values]],
) -> Validated:
    ratios = [
        Ratio(
            name,
            _recorded_ratio(key, read, recorded, name, reference),
            _ratio(key, replayed[name], replayed[reference]),
        )
        for name in recorded
        if name != reference
    ]
    known = [r for r in ratios if not math.isnan(r.apart)]
    orders = ([1.0, *(r.recorded.ratio for r in known)], [1.0, *(r.replayed.ratio for r in known)])
    label = "time of a call" if key == PRIMARY else METRICS[key].label
    return Validated(key, label, ratios, kendall_tau(*orders))


def _recorded_ratio(
    key: str,
    read: Mapping[str, Sequence[_Recording]],
    recorded: Mapping[str, Sequence[Values]],
    name: str,
    reference: str,
) -> Estimate:
    """Return the ratio of recordings, paired in the given order; of single ones by blocks."""
    if key == PRIMARY and min(len(read[name]), len(read[reference])) == 1:
        return unpaired_blocks(read[name][0].by_block(), read[reference][0].by_block())
    return _ratio(key, recorded[name], recorded[reference])


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
        least = TOLD * max(sum(then.values()), sum(now.values()))
        differ += [
            OtherCause(name, cause, then.get(cause, 0.0), now.get(cause, 0.0))
            for cause in {**then, **now}
            if now and abs(now.get(cause, 0.0) - then.get(cause, 0.0)) >= least
        ]
    return sorted(differ, key=lambda one: -abs(one.replayed_ns - one.recorded_ns))
