"""Intervals for the differences of two recordings, from windows of time drawn again in runs.

The unit is the window, never the call, and neighbouring windows are drawn together (a circular
block bootstrap with runs of the square root of their number): a slow minute is one event, not
sixty. The interval is that of Student's t on the logarithm, with the spread of the drawn ratios and
one degree of freedom less than there are runs in the shorter recording. For simulated recordings of
30 to 100 windows, 92 to 97 % of the intervals hold the truth if neighbours correlate by 0.5 or
less, and 79 to 89 % if they correlate by 0.8. An interval shows how much each recording varies in
itself, not what another day would be like.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from spoolscope.analysis.stats import (
    CONFIDENCE,
    MINIMUM_BLOCKS,
    Estimate,
    interval_word,
    t_quantile,
)

DRAWN = 600
ENOUGH = 0.99
"""The part of the draws that must have a ratio for an interval."""
METHOD = "block-bootstrap"
NONE = "none"


@dataclass(frozen=True)
class Moved:
    """One number of both recordings.

    Attributes:
        reference: Its value in the first recording, nan if it has none; candidate likewise.
        ratio: Candidate by reference; nan if undefined.
        low: Lower end of the 95 % interval of the ratio, None if there is none; high likewise.
        difference_low: Lower end of the interval of candidate less reference; difference_high
            likewise.
        own_low: Lower end of the interval of the candidate's value by itself; own_high likewise.
        method: "block-bootstrap" or "none".
    """

    reference: float
    candidate: float
    ratio: float
    low: float | None
    high: float | None
    difference_low: float | None = None
    difference_high: float | None = None
    own_low: float | None = None
    own_high: float | None = None
    method: str = NONE

    @property
    def difference(self) -> float:
        """Candidate less reference."""
        return self.candidate - self.reference

    @property
    def is_certain(self) -> bool:
        """True if the interval of the ratio does not hold 1."""
        return self.low is not None and self.high is not None and not self.low <= 1 <= self.high

    @property
    def word(self) -> str:
        """The verdict of the interval: slower, faster, equivalent or inconclusive."""
        if self.low is None or self.high is None:
            return "inconclusive"
        return interval_word(self.low, self.high)


@dataclass(frozen=True)
class Draws:
    """Windows of one recording, drawn again: the number of times each is in each draw."""

    times: np.ndarray

    @classmethod
    def of(cls, n_windows: int, seed: int) -> "Draws":
        """Draw as many windows as the recording has, in runs."""
        length = run_length(n_windows)
        generator = np.random.default_rng(seed)
        begins = generator.integers(0, n_windows, (DRAWN, -(-n_windows // length)))
        drawn = (begins[:, :, None] + np.arange(length)) % n_windows
        drawn = drawn.reshape(DRAWN, -1)[:, :n_windows]
        times = np.zeros((DRAWN, n_windows))
        np.add.at(times, (np.arange(DRAWN)[:, None], drawn), 1)
        return cls(times)

    @cached_property
    def whole(self) -> np.ndarray:
        """Every window once, and then the draws."""
        once: np.ndarray = np.vstack([np.ones(self.times.shape[1]), self.times])
        return once


def run_length(n_windows: int) -> int:
    """Return the number of neighbouring windows that are drawn together."""
    return max(1, math.ceil(math.sqrt(n_windows)))


Values = np.ndarray
"""A number of a recording as it is, and then in each of its draws."""


class Judge:
    """Maker of intervals for two recordings.

    A recording is given by its number of windows. Each judged value is computed by a function of a
    matrix with the weight of each window, one row for the recording and one for each draw.
    """

    def __init__(self, n_reference: int, n_candidate: int, seed: int = 0) -> None:
        self.reference = Draws.of(n_reference, seed)
        self.candidate = Draws.of(n_candidate, seed + 1)
        fewest = min(n_reference, n_candidate)
        self.has_interval = fewest >= MINIMUM_BLOCKS
        runs = min(n / run_length(n) for n in (n_reference, n_candidate))
        self._freedom = max(1, math.floor(runs) - 1)
        self._t = t_quantile(self._freedom)

    def wider(self, n: int) -> float:
        """Return by how much an interval must be wider if the furthest of ``n`` is picked."""
        return t_quantile(self._freedom, 1 - (1 - CONFIDENCE) / max(n, 1)) / self._t

    def judge(self, reference: Values, candidate: Values) -> Moved:
        """Compare the values of both recordings."""
        was, is_now = float(reference[0]), float(candidate[0])
        ratio = is_now / was if was > 0 and is_now >= 0 else math.nan
        if not self.has_interval or math.isnan(was) or math.isnan(is_now):
            return Moved(was, is_now, ratio, None, None)
        low, high = self._by_ratio(ratio, candidate[1:], reference[1:])
        own_low, own_high = self._by_ratio(is_now, candidate[1:], np.ones(DRAWN))
        spread = self._t * float(np.nanstd(candidate[1:] - reference[1:]))
        return Moved(
            reference=was,
            candidate=is_now,
            ratio=ratio,
            low=low,
            high=high,
            difference_low=is_now - was - spread,
            difference_high=is_now - was + spread,
            own_low=own_low,
            own_high=own_high,
            method=METHOD,
        )

    def _by_ratio(
        self, centre: float, above: Values, below: Values
    ) -> tuple[float, float] | tuple[None, None]:
        """Return the ends of an interval; None if too many draws have a zero divisor."""
        with np.errstate(divide="ignore", invalid="ignore"):
            logs = np.log(above / below)
        known = logs[np.isfinite(logs)]
        if not centre > 0 or len(known) < ENOUGH * len(logs):
            return None, None
        half = self._t * float(known.std())
        return centre * math.exp(-half), centre * math.exp(half)

    def of_sums(
        self, what: Callable[[np.ndarray], np.ndarray], sums: tuple[np.ndarray, np.ndarray]
    ) -> Moved:
        """Judge a function of sums; ``sums`` has a row for each window of each recording."""
        ours, theirs = (
            what(draws.whole @ matrix)
            for draws, matrix in zip((self.reference, self.candidate), sums, strict=True)
        )
        return self.judge(ours, theirs)

    def of_quantile(self, q: float, lengths: tuple[tuple[np.ndarray, np.ndarray], ...]) -> Moved:
        """Judge a quantile of lengths, given as (window, ns) of the calls of each recording."""
        ours, theirs = (
            _quantile(draws.whole, windows, ns, q)
            for draws, (windows, ns) in zip((self.reference, self.candidate), lengths, strict=True)
        )
        return self.judge(ours, theirs)


_FINENESS = 64
"""Buckets for each doubling of a length: 1.1 % wide."""


def _quantile(times: np.ndarray, windows: np.ndarray, ns: np.ndarray, q: float) -> np.ndarray:
    """Return a quantile exactly for the recording, and by bucket for each draw."""
    if not len(ns):
        return np.full(len(times), math.nan)
    bucket = np.floor(_FINENESS * np.log2(np.maximum(ns, 1))).astype(np.int64)
    histogram = np.zeros((times.shape[1], int(bucket.max()) + 1))
    np.add.at(histogram, (windows, bucket), 1)
    below = np.cumsum(times @ histogram, axis=1)
    reached = (below >= q * below[:, -1:]).argmax(axis=1)
    found = np.exp2((reached + 0.5) / _FINENESS)
    found[0] = float(np.quantile(ns, q))
    return np.asarray(found)


Sums = tuple[np.ndarray, np.ndarray]
"""The sum of what was measured, and the number of events, by window."""


def ratio_of_means(candidate: Sums, reference: Sums) -> Estimate:
    """Estimate the ratio of two means of events that are not the same."""
    ours, theirs = (np.column_stack(sums) for sums in (candidate, reference))
    judge = Judge(len(theirs), len(ours))
    moved = judge.of_sums(lambda drawn: drawn[:, 0] / np.maximum(drawn[:, 1], 1), (theirs, ours))
    known = not math.isnan(moved.ratio)
    method = "none" if moved.low is None else "within-run"
    return Estimate(moved.ratio, moved.low, moved.high, int(known), int(moved.ratio < 1), method)
