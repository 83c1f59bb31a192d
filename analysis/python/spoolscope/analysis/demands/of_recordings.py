"""Metrics of two recordings."""

import math

import numpy as np

from spoolscope.analysis.demands.decisions import Decision, Measured, decide
from spoolscope.analysis.demands.language import (
    CAUSE,
    MEAN,
    OVER,
    QUANTILE,
    TIME,
    Demand,
    Metric,
)
from spoolscope.analysis.demands.recorded import lack
from spoolscope.analysis.latency import supported
from spoolscope.analysis.recordings.moved import (
    LEAST_CALLS,
    LEAST_COVERED,
    LEAST_DELIVERIES,
    SECONDS,
    Between,
)
from spoolscope.analysis.recordings.resampling import Moved
from spoolscope.analysis.stats import MINIMUM_BLOCKS

RULE_OF_THREE = 3
"""After n windows without a slow call, less than 3/n of windows have one, with 95 % confidence.

The window is counted and not the call: slow calls come together, and in a bad second all may be."""
FEW_WINDOWS = f"a recording has fewer than {MINIMUM_BLOCKS} windows of 1 s: record longer"


def measure(between: Between, metric: Metric) -> tuple[Moved | None, str]:
    """Return a metric of two recordings, or the reason why it cannot be measured."""
    if metric.kind == TIME:
        if metric.calls and not any(stratum[1] in metric.calls for stratum in between.strata):
            return None, f"no kind of such calls has {LEAST_CALLS} in both recordings"
        return between.part(lambda stratum: not metric.calls or stratum[1] in metric.calls), ""
    if metric.kind == CAUSE:
        return between.part(lambda _stratum: True, metric.name), ""
    if metric.kind in (MEAN, QUANTILE, OVER):
        return _of_lengths(between, metric)
    load = between.load
    below = {"second": SECONDS, "call": "calls", "delivery": str(load.counted_as)}[metric.per]
    above = str(load.counted_as) if metric.name == "deliveries" else metric.name
    if load.counted_as is None and "None" in (above, below):
        return None, "no file names tell of deliveries in both recordings"
    if str(load.counted_as) in (above, below) and min(load.deliveries) < LEAST_DELIVERIES:
        return None, f"a recording has fewer than {LEAST_DELIVERIES} deliveries"
    return between.ratio(above, below), ""


def _of_lengths(between: Between, metric: Metric) -> tuple[Moved | None, str]:
    lengths = between.lengths(metric.calls)
    fewest = min(len(ns) for _, ns in lengths)
    if not fewest:
        return None, "a recording has no such call"
    if metric.kind == QUANTILE:
        if not supported(fewest, metric.q) or not supported(fewest, 1 - metric.q):
            return None, f"a recording has {fewest:,} such calls, too few for it"
        return between.judge.of_quantile(metric.q, lengths), ""
    sums = []
    for side, (windows, ns) in zip((between.reference, between.candidate), lengths, strict=True):
        what = ns if metric.kind == MEAN else ns > metric.over_ns
        columns = [
            np.bincount(windows, weights=what.astype(float), minlength=side.n),
            np.bincount(windows, minlength=side.n).astype(float),
        ]
        sums.append(np.column_stack(columns))
    return between.judge.of_sums(_divided, (sums[0], sums[1])), ""


def _divided(drawn: np.ndarray) -> np.ndarray:
    return np.asarray(drawn[:, 0] / np.maximum(drawn[:, 1], 1))


def decide_recordings(between: Between, demand: Demand) -> Decision:
    """Decide an expression of two recordings."""
    metric, name = demand.metric, between.candidate.name
    sides = (between.reference.trace, between.candidate.trace)
    moved, why = None, next(filter(None, (lack(trace, metric) for trace in sides)), "")
    if not why:
        moved, why = measure(between, metric)
    if moved is None:
        return decide(demand, name, Measured(None, why=why))
    doubt = ""
    if metric.kind in (TIME, CAUSE):
        least = between.covered_time(metric.calls)
        if least < LEAST_COVERED:
            doubt = f"only {100 * least:.0f} % of the time is in calls that both have"
    return decide(demand, name, _measured(moved, demand, between), doubt)


def _measured(moved: Moved, demand: Demand, between: Between) -> Measured:
    why = "" if between.judge.has_interval else FEW_WINDOWS
    if not demand.relative:
        if moved.candidate == 0 and demand.metric.kind == OVER and not why:
            windows, _ = between.lengths(demand.metric.calls)[1]
            return Measured(0.0, 0.0, min(1.0, RULE_OF_THREE / len(np.unique(windows))))
        return Measured(moved.candidate, moved.own_low, moved.own_high, why)
    if moved.low is not None or not between.judge.has_interval or moved.reference > 0:
        return Measured(_known(moved.ratio), moved.low, moved.high, why or _rare(moved))
    if moved.candidate == 0:  # 0 on both sides is no change
        return Measured(1.0, 1.0, 1.0)
    if moved.difference_low is not None and moved.difference_low > 0:
        return Measured(math.inf, math.inf, math.inf)
    return Measured(None, why=_rare(moved))


def _known(ratio: float) -> float | None:
    return None if math.isnan(ratio) else ratio


def _rare(moved: Moved) -> str:
    return "" if moved.low is not None else "it happens too rarely"
