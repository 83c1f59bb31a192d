"""Calls in flight, in the recording and in a replay of it.

A call is in flight from its issue to its end. The *distribution* is the share of the time in which
k calls were in flight, from the first issue to the last end. The *earth mover's distance* of two
distributions is the number of calls, on average over the time, that must be added or removed to
make one the other: the sum of the absolute differences of their cumulative shares.
"""

from pathlib import Path

import numpy as np
import numpy.typing as npt

from spoolscope.replay import on_disk
from spoolscope.traces.results_certificate import InFlight

Int = npt.NDArray[np.int64]
Shares = npt.NDArray[np.float64]
BINS = 60


def distribution(start: Int, end: Int, place: Path | None = None) -> Shares:
    """Return the share of time with k calls in flight, k from 0; empty without a duration.

    Args:
        start: When calls began, ns.
        end: When they ended.
        place: Directory for arrays of their length.
    """
    n = len(start)
    moments = on_disk.array(2 * n, np.int64, place)
    for part in on_disk.parts(n):
        # The lowest bit is 1 for a start and 0 for an end.
        moments[part] = start[part] * 2 + 1
        moments[n + part.start : n + part.stop] = end[part] * 2
    moments.sort()
    level = 0
    held: Shares = np.zeros(0)
    for part in on_disk.parts(2 * n - 1):
        keys = moments[part.start : part.stop + 1]
        levels = level + np.cumsum(np.where(keys[:-1] & 1, 1, -1))
        level = int(levels[-1])
        lasted = np.diff(keys >> 1)
        # The order within one moment does not matter: these levels have no duration.
        held = np.pad(held, (0, max(int(levels.max()) + 1 - len(held), 0)))
        held += np.bincount(levels[lasted > 0], lasted[lasted > 0], len(held))
    return np.trim_zeros(held, "b") / held.sum() if held.any() else np.zeros(0)


def mean(shares: Shares) -> float:
    """Return the mean number of calls in flight."""
    return float((np.arange(len(shares)) * shares).sum())


def earth_movers_distance(one: Shares, other: Shares) -> float:
    """Return the distance of two distributions, in calls."""
    size = max(len(one), len(other))
    cumulated = [np.cumsum(np.pad(shares, (0, size - len(shares)))) for shares in (one, other)]
    return float(np.abs(cumulated[0] - cumulated[1]).sum())


def over_time(start: Int, end: Int, width_ns: int, bins: int, first_ns: int = 0) -> list[float]:
    """Return the mean number of calls in flight in each of ``bins`` bins from ``first_ns``."""
    edges = np.arange(bins + 1, dtype=np.float64) * width_ns

    def passed(moments: Int) -> Shares:
        """Return the time since each moment, summed over the moments, at every edge."""
        n, sums = np.zeros(bins + 2), np.zeros(bins + 2)
        for part in on_disk.parts(len(moments)):
            since = moments[part] - first_ns
            # One bin later: a moment counts from the edge after it.
            at = np.minimum(since // width_ns, bins) + 1
            n += np.bincount(at, minlength=bins + 2)
            sums += np.bincount(at, weights=since, minlength=bins + 2)
        spent: Shares = np.cumsum(n)[:-1] * edges - np.cumsum(sums)[:-1]
        return spent

    levels = np.diff(passed(start) - passed(end)) / width_ns
    return [round(float(level), 4) for level in levels]


def summary(
    recorded: tuple[Int, Int], replayed: tuple[Int, Int], place: Path | None = None
) -> InFlight:
    """Compare the calls in flight; the first two arguments are (starts, ends) of the same calls.

    ``over_time`` is the mean per bin of ``bin_ns``, each from its own first issue. Times are in ns;
    ``place`` is a directory for arrays of their length.
    """
    both = (recorded, replayed)
    shares = [distribution(*calls, place) for calls in both]
    means = [mean(found) for found in shares]
    moved = earth_movers_distance(*shares)
    firsts = [int(start.min()) if len(start) else 0 for start, _ in both]
    lasts = [int(end.max()) if len(end) else 0 for _, end in both]
    longest = max(last - first for first, last in zip(firsts, lasts, strict=True))
    width = max(-(-longest // BINS), 1)
    bins = -(-longest // width)
    lines = [
        over_time(*calls, width, bins, first) for calls, first in zip(both, firsts, strict=True)
    ]
    return InFlight(
        recorded_mean=means[0],
        replayed_mean=means[1],
        recorded_max=max(len(shares[0]) - 1, 0),
        replayed_max=max(len(shares[1]) - 1, 0),
        emd=moved,
        emd_by_mean=moved / means[0] if means[0] else None,
        bin_ns=width,
        recorded=lines[0],
        replayed=lines[1],
    )
