"""Statistics of paired runs: the unit is the round, never the call."""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Spread:
    """A median with the order-statistic interval around it.

    Attributes:
        median: Median of the rounds.
        low: Lower end of the interval.
        high: Upper end.
        coverage: Probability that the interval holds the true median, whatever the distribution.
        n: Number of rounds.
    """

    median: float
    low: float
    high: float
    coverage: float
    n: int


def spread(values: Sequence[float], wanted: float = 0.95) -> Spread:
    """Return median and the narrowest interval of the wanted coverage; few rounds: the range."""
    ordered = sorted(values)
    n = len(ordered)
    cut = 0
    while cut + 1 < (n + 1) // 2 and coverage(n, cut + 1) >= wanted:
        cut += 1
    middle = statistics.median(ordered)
    return Spread(middle, ordered[cut], ordered[n - 1 - cut], coverage(n, cut), n)


def coverage(n: int, cut: int) -> float:
    """Return P(the median lies between the values left when ``cut`` are cut off either end)."""
    outside = sum(math.comb(n, k) for k in range(cut + 1)) / 2 ** (n - 1)
    return float(max(0.0, 1 - outside))
