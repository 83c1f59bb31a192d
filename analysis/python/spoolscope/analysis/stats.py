"""Intervals for ratios of two candidates, and the verdict words for them.

The unit is the run, never the call: pooled calls of one run depend on one another, and their
"95 %" intervals cover the truth 40 to 67 % of the time. Runs are paired by round, because the
rounds are interleaved and drift of the machine then cancels.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

MINIMUM_EFFECT = 0.05
"""Difference below which candidates are equivalent: 5 %."""

MINIMUM_ROUNDS = 3
MINIMUM_BLOCKS = 10
RESAMPLES = 2000
CONFIDENCE = 0.95


@dataclass(frozen=True)
class Estimate:
    """A ratio candidate / reference with its interval.

    Attributes:
        ratio: Geometric mean of the paired ratios, or the ratio of sums within one run.
        low: Lower end of the 95 % interval, None if there is none; high likewise.
        n: Number of pairs of runs.
        n_lower: Number of pairs in which the candidate was lower.
        method: "paired-t" over rounds, "within-run" over time blocks, or "none".
    """

    ratio: float
    low: float | None
    high: float | None
    n: int
    n_lower: int
    method: str


def t_coverage(t: float, df: int) -> float:
    """Return P(abs(T) < t) for Student's t with ``df`` degrees of freedom, in closed form."""
    theta = math.atan(t / math.sqrt(df))
    cos2, term, total = math.cos(theta) ** 2, 1.0, 0.0
    if df % 2:
        term = math.cos(theta)
        for k in range(3, df + 1, 2):
            total += term
            term *= cos2 * (k - 1) / k
        return 2 / math.pi * (theta + math.sin(theta) * total)
    for k in range(2, df + 1, 2):
        total += term
        term *= cos2 * (k - 1) / k
    return math.sin(theta) * total


def t_quantile(df: int, coverage: float = CONFIDENCE) -> float:
    """Return t such that P(abs(T) < t) is ``coverage``; df at least 1."""
    low, high = 0.0, 1e4
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if t_coverage(middle, df) < coverage else (low, middle)
    return high


def paired(candidate: Sequence[float], reference: Sequence[float]) -> Estimate:
    """Estimate the ratio of paired runs by a t-interval on the log ratio.

    One pair gives a ratio without an interval. A pair with a zero or missing value is left out.
    """
    pairs = [(c, r) for c, r in zip(candidate, reference, strict=True) if c > 0 and r > 0]
    n = len(pairs)
    if n == 0:
        return Estimate(math.nan, None, None, 0, 0, "none")
    logs = np.log([c / r for c, r in pairs])
    n_lower = int(sum(c < r for c, r in pairs))
    centre = float(logs.mean())
    if n == 1:
        return Estimate(math.exp(centre), None, None, 1, n_lower, "none")
    half = t_quantile(n - 1) * float(logs.std(ddof=1)) / math.sqrt(n)
    return Estimate(
        math.exp(centre), math.exp(centre - half), math.exp(centre + half), n, n_lower, "paired-t"
    )


def within_run(candidate: np.ndarray, reference: np.ndarray, seed: int = 0) -> Estimate:
    """Estimate the ratio of sums inside one round by bootstrap over time blocks.

    Args:
        candidate: Time in calls per block, the same calls in the same block on both sides.
        reference: Likewise for the reference.
        seed: Seed of the resampling.

    The interval shows how much one run varies in itself, not what a second run would do.
    """
    used = (candidate > 0) | (reference > 0)
    c, r = candidate[used].astype(np.float64), reference[used].astype(np.float64)
    if len(c) == 0 or r.sum() <= 0 or c.sum() <= 0:
        return Estimate(math.nan, None, None, 0, 0, "none")
    ratio = float(c.sum() / r.sum())
    if len(c) < MINIMUM_BLOCKS:
        return Estimate(ratio, None, None, 1, int(ratio < 1), "none")
    chosen = np.random.default_rng(seed).integers(0, len(c), (RESAMPLES, len(c)))
    ratios = c[chosen].sum(axis=1) / np.maximum(r[chosen].sum(axis=1), 1.0)
    tail = 100 * (1 - CONFIDENCE) / 2
    low, high = np.percentile(ratios, [tail, 100 - tail])
    return Estimate(ratio, float(low), float(high), 1, int(ratio < 1), "within-run")


def word(estimate: Estimate, *, faithful: bool = True) -> str:
    """Return faster, slower, equivalent or inconclusive; indicative when rounds are too few.

    Too few rounds indicate nothing, either, if their interval has values on both sides of 1.
    """
    if not faithful:
        return "inconclusive"
    if estimate.low is None or estimate.high is None:
        return "indicative"
    if estimate.n < MINIMUM_ROUNDS:
        return "inconclusive" if estimate.low <= 1 <= estimate.high else "indicative"
    return interval_word(estimate.low, estimate.high)


def interval_word(low: float, high: float) -> str:
    """Return the word for the interval of a ratio; below ``MINIMUM_EFFECT`` is no difference."""
    least, most = 1 / (1 + MINIMUM_EFFECT), 1 + MINIMUM_EFFECT
    if high < least:
        return "faster"
    if low > most:
        return "slower"
    return "equivalent" if low >= least and high <= most else "inconclusive"


def contradict(one: Estimate, other: Estimate) -> bool:
    """Return True if two metrics order a candidate and its reference differently.

    An equivalent difference gives no order.
    """
    ratios = (one.ratio, other.ratio)
    least, most = min(ratios), max(ratios)
    apart = least < 1 / (1 + MINIMUM_EFFECT) or most > 1 + MINIMUM_EFFECT
    return bool(least < 1 < most and apart)  # False if one is unknown (nan)


def kendall_tau(one: Sequence[float], other: Sequence[float]) -> float:
    """Return Kendall's tau-b of two metrics over the same things: 1 is the same order.

    Pairs that are equal in one metric count for neither order; nan if all are, or with one thing.
    """
    a, b = np.asarray(one, np.float64), np.asarray(other, np.float64)
    first, second = np.triu_indices(len(a), 1)
    signs = np.sign(a[first] - a[second]), np.sign(b[first] - b[second])
    untied = math.sqrt(np.count_nonzero(signs[0]) * np.count_nonzero(signs[1]))
    return float((signs[0] * signs[1]).sum() / untied) if untied else math.nan


def rounds_wanted(estimate: Estimate) -> int:
    """Return the number of rounds that would probably give a verdict; 10 if that is unknown."""
    if estimate.method != "paired-t" or estimate.high is None or estimate.n < MINIMUM_ROUNDS:
        return 10
    effect, limit = abs(math.log(estimate.ratio)), math.log1p(MINIMUM_EFFECT)
    half = math.log(estimate.high / estimate.ratio)
    deviation = half / t_quantile(estimate.n - 1) * math.sqrt(estimate.n)
    target = max(abs(effect - limit), limit / 4)
    return int(min(100, max(estimate.n + 2, math.ceil((2 * deviation / target) ** 2) + 1)))
