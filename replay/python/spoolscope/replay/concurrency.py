"""How many calls are in flight, in the recording and in a replay of it.

A call is in flight from its issue to its end. The *distribution* says for which part of the time
k calls were in flight, from the first issue to the last end; the *earth mover's distance* of two
distributions is how many calls, on average over the time, one would have to add or take away to
make one the other: the sum of the absolute differences of their cumulative shares.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

Int = npt.NDArray[np.int64]
Shares = npt.NDArray[np.float64]
BINS = 60


def distribution(start: Int, end: Int) -> Shares:
    """Return the share of time with k calls in flight, k from 0; empty without a duration."""
    if not len(start):
        return np.zeros(0)
    moments = np.concatenate([start, end])
    steps = np.concatenate([np.ones(len(start), np.int64), np.full(len(end), -1, np.int64)])
    order = np.argsort(moments, kind="stable")
    # The order within one moment does not matter: nothing lasts no time.
    level = np.cumsum(steps[order])[:-1]
    lasted = np.diff(moments[order])
    level, lasted = level[lasted > 0], lasted[lasted > 0]
    if not len(level):
        return np.zeros(0)
    shares: Shares = np.bincount(level, weights=lasted) / lasted.sum()
    return shares


def mean(shares: Shares) -> float:
    """Return the mean number of calls in flight."""
    return float((np.arange(len(shares)) * shares).sum())


def earth_movers_distance(one: Shares, other: Shares) -> float:
    """Return the distance of two distributions, in calls."""
    size = max(len(one), len(other))
    cumulated = [np.cumsum(np.pad(shares, (0, size - len(shares)))) for shares in (one, other)]
    return float(np.abs(cumulated[0] - cumulated[1]).sum())


def over_time(start: Int, end: Int, width_ns: int, bins: int) -> list[float]:
    """Return the mean number of calls in flight in each of ``bins`` bins from time 0."""
    edges = np.arange(bins + 1, dtype=np.float64) * width_ns

    def passed(moments: Int) -> Shares:
        """Time since each moment, summed over the moments, at every edge."""
        moments = np.sort(moments)
        n = np.searchsorted(moments, edges)
        sums = np.concatenate([[0.0], np.cumsum(moments, dtype=np.float64)])
        spent: Shares = n * edges - sums[n]
        return spent

    levels = np.diff(passed(start) - passed(end)) / width_ns
    return [round(float(level), 4) for level in levels]


def summary(recorded: tuple[Int, Int], replayed: tuple[Int, Int]) -> dict[str, Any]:
    """Compare the calls in flight; each argument is (starts, ends), ns, of the same calls.

    ``over_time`` is the mean per bin of ``bin_ns``, each from its own first issue.
    """
    shares = [distribution(*calls) for calls in (recorded, replayed)]
    means = [mean(found) for found in shares]
    moved = earth_movers_distance(*shares)
    moments = [_from_zero(*calls) for calls in (recorded, replayed)]
    longest = max((int(end.max(initial=0)) for _, end in moments), default=0)
    width = max(-(-longest // BINS), 1)
    lines = [over_time(start, end, width, -(-longest // width)) for start, end in moments]
    return {
        "recorded_mean": means[0],
        "replayed_mean": means[1],
        "recorded_max": max(len(shares[0]) - 1, 0),
        "replayed_max": max(len(shares[1]) - 1, 0),
        "emd": moved,
        "emd_by_mean": moved / means[0] if means[0] else None,
        "bin_ns": width,
        "recorded": lines[0],
        "replayed": lines[1],
    }


def _from_zero(start: Int, end: Int) -> tuple[Int, Int]:
    first = int(start.min(initial=np.iinfo(np.int64).max)) if len(start) else 0
    return start - first, end - first
