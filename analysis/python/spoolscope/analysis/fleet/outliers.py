"""Hosts that differ from their peers, and hosts that get slower while their peers do not.

Peers of a spool are those on the same type of filesystem with nearly as many calls a day. A spool
is one number: the median of its days, on a log scale. Its distance from the peers' median is
measured by their median absolute deviation, which a few bad hosts cannot move, and judged by
Student's t. All spools and measures are one family of tests, for which Benjamini and Hochberg's
procedure bounds the share of false ones among those that are named: an operator wants a list that
is mostly right, and in a large fleet Holm's bound on any false one would name no host. Of a fleet
without differences both bounds are the same.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from spoolscope.analysis.fleet.measures import MEASURES, Fleet
from spoolscope.analysis.stats import t_coverage

FALSE_SHARE = 0.05
"""Bound on the expected share of false ones among the named (false discovery rate)."""
LEAST_RATIO = 1.25
"""Smallest ratio to the peers, either way, that is named."""
PARTS_OF_A_CALL = ("lookup", "cpu")
LEAST_PART = 0.02
"""Smallest difference in such a part that is named, as a share of the time of a usual call."""
LEAST_PEERS = 8
MOST_PEERS = 200
LOAD_FACTOR = 4.0
"""Largest ratio of the calls a day of peers."""
LEAST_DAYS, LEAST_TREND_DAYS = 3, 7
TREND = "trend"
TRENDED = "disk"
"""The measure in which trends are sought: a disk that fails slowly."""

_MAD_TO_SD = 1.4826
_FLOOR = math.log(1.02)
"""Least spread of peers: figures of a few equal hosts do not make 2 % a wonder."""
_MAD_EFFICIENCY = 0.37
"""Degrees of freedom of a MAD, as a share of those of a standard deviation."""


@dataclass(frozen=True)
class Test:
    """One spool in one measure, held against its peers.

    Attributes:
        row: The spool's row in the fleet.
        measure: A measure, or "trend".
        value: Its value in ns; for a trend its growth over all days, 1.5 being 50 % more.
        peers: Median of the peers.
        ratio: Value by peers.
        deviations: Distance in robust standard deviations of the peers.
        n_peers: Number of peers.
        p: Probability of such a distance if the spool is like its peers.
        q: The same, adjusted for all tests.
    """

    row: int
    measure: str
    value: float
    peers: float
    ratio: float
    deviations: float
    n_peers: int
    p: float
    q: float = 1.0

    @property
    def named(self) -> bool:
        """True if it is certain and large enough to be named."""
        large = abs(math.log(self.ratio)) >= math.log(LEAST_RATIO)
        return self.q <= FALSE_SHARE and large

    @property
    def slower(self) -> bool:
        """True if it is above its peers."""
        return self.ratio > 1


@dataclass(frozen=True)
class Tested:
    """All tests of a fleet, the number of spools that could not be tested, and a floor.

    A difference of a part of a call below ``least_ns`` is not named.
    """

    tests: Sequence[Test]
    alone: int
    least_ns: float

    @property
    def named(self) -> list[Test]:
        """The spools that differ, the slowest first."""
        large = (test for test in self.tests if test.named and self._matters(test))
        return sorted(large, key=lambda test: -test.ratio)

    def _matters(self, test: Test) -> bool:
        """Return False if a difference is too small a part of a call to be of any use."""
        of_a_call = test.measure in PARTS_OF_A_CALL
        return not of_a_call or abs(test.value - test.peers) >= self.least_ns


def tested(fleet: Fleet) -> Tested:
    """Hold every spool against its peers, in every measure and in the trend."""
    with np.errstate(invalid="ignore"):
        load = np.log(np.maximum(_middle(np.where(fleet.calls > 0, fleet.calls, np.nan), 1), 1))
    kinds = np.array([spool.fs for spool in fleet.spools], object)
    found: list[Test] = []
    judged: set[int] = set()
    for measure in MEASURES:
        logs = np.log(fleet.values[measure])
        enough = np.isfinite(logs).sum(axis=1) >= LEAST_DAYS
        levels = np.where(enough, _middle(logs, LEAST_DAYS), np.nan)
        found += _against_peers(measure, levels, kinds, load)
    growth = trends(np.log(fleet.values[TRENDED]), kinds)
    found += _against_peers(TREND, growth, kinds, load)
    judged = {test.row for test in found}
    adjusted = benjamini_hochberg([test.p for test in found])
    tests = [Test(**{**vars(t), "q": float(q)}) for t, q in zip(found, adjusted, strict=True)]
    whole = fleet.values["call"]
    a_call = float(np.nanmedian(whole)) if np.isfinite(whole).any() else 0.0
    return Tested(tests, len(fleet.spools) - len(judged), LEAST_PART * a_call)


def benjamini_hochberg(p: Sequence[float]) -> np.ndarray:
    """Return p-values adjusted so that those up to q have an expected share q of false ones."""
    values = np.asarray(p, np.float64)
    order = np.argsort(values)
    ranked = values[order] * len(values) / np.arange(1, len(values) + 1)
    adjusted = np.empty_like(values)
    adjusted[order] = np.minimum(np.minimum.accumulate(ranked[::-1])[::-1], 1)
    return adjusted


def trends(logs: np.ndarray, kinds: np.ndarray) -> np.ndarray:
    """Return the growth of each row over all days, as a logarithm, beside that of its kind.

    It is the median of the slopes between all pairs of days (Theil and Sen), after the day's
    median of all spools of the kind is subtracted; nan with under seven days.
    """
    growth = np.full(len(logs), np.nan)
    n_days = logs.shape[1]
    # Only days with a value: there may be few of them in a long span.
    days = np.flatnonzero(np.isfinite(logs).any(axis=0))
    first, second = np.triu_indices(len(days), 1)
    for kind in set(kinds):
        rows = np.flatnonzero(kinds == kind)
        own = logs[np.ix_(rows, days)]
        own = own - _middle(own, 1)[:, None]
        rest = own - _middle(own.T, 1)[None, :]
        for row, values in zip(rows, rest, strict=True):
            if np.isfinite(values).sum() >= LEAST_TREND_DAYS:
                slopes = (values[second] - values[first]) / (days[second] - days[first])
                growth[row] = np.nanmedian(slopes) * (n_days - 1)
    return growth


def _middle(values: np.ndarray, least: int) -> np.ndarray:
    """Return the median of each row; nan for rows with fewer values than ``least``."""
    middles = np.full(len(values), np.nan)
    enough = np.isfinite(values).sum(axis=1) >= least
    if enough.any():
        middles[enough] = np.nanmedian(values[enough], axis=1)
    return middles


def _against_peers(
    measure: str, levels: np.ndarray, kinds: np.ndarray, load: np.ndarray
) -> list[Test]:
    tests = []
    for kind in set(kinds):
        rows = np.flatnonzero((kinds == kind) & np.isfinite(levels) & np.isfinite(load))
        rows = rows[np.argsort(load[rows], kind="stable")]
        for place, row in enumerate(rows):
            peers = _peers(rows, place, load)
            if len(peers) >= LEAST_PEERS:
                tests.append(_test(measure, int(row), levels[row], levels[peers]))
    return sorted(tests, key=lambda test: test.row)


def _peers(rows: np.ndarray, place: int, load: np.ndarray) -> np.ndarray:
    """Return the nearest rows in load, of rows that are sorted by it, without the one itself."""
    low, high = max(0, place - MOST_PEERS // 2), place + MOST_PEERS // 2 + 1
    near = np.delete(rows[low:high], place - low)
    alike: np.ndarray = near[np.abs(load[near] - load[rows[place]]) <= math.log(LOAD_FACTOR)]
    return alike


def _test(measure: str, row: int, level: float, peers: np.ndarray) -> Test:
    n = len(peers)
    middle = float(np.median(peers))
    spread = max(_MAD_TO_SD * float(np.median(np.abs(peers - middle))) * (1 + 0.8 / n), _FLOOR)
    deviations = float(level - middle) / (spread * math.sqrt(1 + math.pi / (2 * n)))
    df = max(2, round(_MAD_EFFICIENCY * (n - 1)))
    p = max(1 - t_coverage(abs(deviations), df), 1e-16)
    ratio = math.exp(level - middle)
    value, of_peers = math.exp(level), math.exp(middle)
    return Test(row, measure, value, of_peers, ratio, deviations, n, p)
