"""Before and after a date, a kernel or a mount option, from the days of the hosts that changed.

The unit is the host: the ratio of the median of its days after to that of its days before. Hosts
that stayed as they were are the control: what changed for them on the same days is subtracted. Of
the hosts the mean is taken without the fifth that moved least and the fifth that moved most, so
that one disk that fails meanwhile decides nothing. The interval is a studentised bootstrap over
hosts, which holds for five hosts and more. Without a control nothing tells the change from
whatever else happened then; the interval is then widened by how much the whole fleet varies from
day to day.
"""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from spoolscope.analysis.fleet.measures import MEASURES, PRIMARY, Fleet
from spoolscope.analysis.stats import CONFIDENCE, Estimate, t_quantile, word
from spoolscope.traces.errors import USAGE, SpoolscopeError

KERNEL, OPTIONS = "kernel", "options"
LEAST_HOSTS = 5
LEAST_DAYS = 3
"""Fewest days of a host on each side."""
RESAMPLES = 4000
TRIMMED = 0.2
"""Share of the hosts at either end that a mean over hosts leaves out."""
METHOD = "bootstrap-t"


@dataclass(frozen=True)
class Split:
    """The spools that changed, the day of their change, and those that stayed.

    Attributes:
        what: "kernel", "options", or a date.
        before: The kernel or the options before; "" for a date.
        after: The same afterwards.
        changed: (row, column of the first day afterwards) of each.
        stayed: Rows of spools that were as before on all days.
        others: Spools that are neither: several changes, or another one.
    """

    what: str
    before: str
    after: str
    changed: Sequence[tuple[int, int]]
    stayed: Sequence[int]
    others: int


@dataclass(frozen=True)
class Effect:
    """The effect of a change on one measure.

    Attributes:
        measure: Its key.
        estimate: After by before, less the control; its interval at ``confidence``.
        n_control: Spools of the control that had enough days; 0 if there is none.
        control: Their ratio; nan without.
        confidence: Level of the interval: all measures together hold at 95 %.
        word: slower, faster, equivalent or inconclusive.
    """

    measure: str
    estimate: Estimate
    n_control: int
    control: float
    confidence: float
    word: str


def split(fleet: Fleet, what: str) -> Split:
    """Find which spools changed, and when.

    Args:
        fleet: The fleet.
        what: "kernel", "options", or a date as YYYY-MM-DD, which is the first day afterwards.

    Raises:
        SpoolscopeError: no spool has days before and after.
    """
    if what not in (KERNEL, OPTIONS):
        return _by_date(fleet, what)
    labels = fleet.kernels if what == KERNEL else fleet.options
    moves: dict[int, tuple[str, str, int]] = {}
    constant: dict[int, str] = {}
    for row, own in enumerate(labels):
        seen = [(column, label) for column, label in enumerate(own) if label]
        turns = [(a[1], *b) for a, b in pairwise(seen) if a[1] != b[1]]
        if len(turns) == 1:
            before, column, after = turns[0]
            moves[row] = before, after, column
        elif seen and not turns:
            constant[row] = seen[0][1]
    if not moves:
        raise SpoolscopeError(
            f"no host changed its {'kernel' if what == KERNEL else 'mount options'} once",
            remedy="give --before-after a date",
            exit_code=USAGE,
        )
    (before, after), _ = Counter((b, a) for b, a, _ in moves.values()).most_common(1)[0]
    changed = [(row, column) for row, (b, a, column) in moves.items() if (b, a) == (before, after)]
    stayed = [row for row, label in constant.items() if label == before]
    others = len(fleet.spools) - len(changed) - len(stayed)
    return Split(what, before, after, changed, stayed, others)


def _by_date(fleet: Fleet, day: str) -> Split:
    if not fleet.dates or not fleet.dates[0] < day <= fleet.dates[-1]:
        span = f"{fleet.dates[0]} to {fleet.dates[-1]}" if fleet.dates else "no day"
        raise SpoolscopeError(
            f"{day} is not kernel, options, or a date after the first day of {span}",
            remedy="give --before-after kernel, options, or a day as YYYY-MM-DD",
            exit_code=USAGE,
        )
    column = list(fleet.dates).index(day)
    return Split(day, "", "", [(row, column) for row in range(len(fleet.spools))], [], 0)


def effects(fleet: Fleet, found: Split, seed: int = 0) -> list[Effect]:
    """Return the effect on every measure, the primary one first.

    The interval of the primary measure holds at 95 %, those of the others together at 95 %.
    """
    beside = 1 - (1 - CONFIDENCE) / (len(MEASURES) - 1)
    order = [PRIMARY, *(name for name in MEASURES if name != PRIMARY)]
    return [
        _effect(fleet, found, name, CONFIDENCE if name == PRIMARY else beside, seed)
        for name in order
    ]


def _effect(fleet: Fleet, found: Split, measure: str, confidence: float, seed: int) -> Effect:
    logs = np.log(fleet.values[measure])
    moved = np.array([_moved(logs[row], column) for row, column in found.changed])
    changed = np.isfinite(moved)
    columns = [column for (_, column), known in zip(found.changed, changed, strict=True) if known]
    control = _control(logs[list(found.stayed)], columns)
    ours = moved[changed]
    n = len(ours)
    lower = int((ours < 0).sum())
    if n == 0:
        nothing = Estimate(math.nan, None, None, 0, 0, "none")
        return Effect(measure, nothing, 0, math.nan, confidence, "inconclusive")
    has_control = len(control) >= LEAST_HOSTS
    theirs = control if has_control else np.zeros(0)
    moved_control = float(_trimmed(theirs)[0]) if has_control else 0.0
    centre = float(_trimmed(ours)[0]) - moved_control
    low = high = None
    if n >= LEAST_HOSTS:
        below, above = _bootstrap_t(ours, theirs, confidence, seed)
        if not has_control:
            days = _days_half(logs[[row for row, _ in found.changed]], columns, confidence)
            below, above = math.hypot(below, days), math.hypot(above, days)
        low, high = math.exp(centre - below), math.exp(centre + above)
    estimate = Estimate(math.exp(centre), low, high, n, lower, METHOD if low else "none")
    said = word(estimate) if low is not None else "inconclusive"
    ratio = math.exp(moved_control) if has_control else math.nan
    return Effect(measure, estimate, len(theirs), ratio, confidence, said)


def _moved(days: np.ndarray, column: int) -> float:
    """Return the difference of the medians after and before a day; nan with too few days."""
    before, after = days[:column], days[column:]
    before, after = before[np.isfinite(before)], after[np.isfinite(after)]
    if min(len(before), len(after)) < LEAST_DAYS:
        return math.nan
    return float(np.median(after) - np.median(before))


def _control(logs: np.ndarray, columns: Sequence[int]) -> np.ndarray:
    """Return what moved for each spool that stayed, on the mean over the days of the changes."""
    if not len(logs) or not columns:
        return np.zeros(0)
    weights = Counter(columns)
    per_day = np.array([[_moved(row, column) for column in weights] for row in logs])
    moved: np.ndarray = per_day @ (np.array(list(weights.values())) / len(columns))
    known: np.ndarray = moved[np.isfinite(moved)]
    return known


def _bootstrap_t(
    ours: np.ndarray, theirs: np.ndarray, confidence: float, seed: int
) -> tuple[float, float]:
    """Return how far the interval of the difference of two means reaches down and up."""
    generator = np.random.default_rng(seed)
    means = np.zeros(RESAMPLES)
    variances = np.zeros(RESAMPLES)
    centre = variance = 0.0
    for sign, values in ((1, ours), (-1, theirs)):
        n = len(values)
        if n:
            drawn = values[generator.integers(0, n, (RESAMPLES, n))]
            drawn_means, drawn_variances = _trimmed(drawn)
            means += sign * drawn_means
            variances += drawn_variances
            own_mean, own_variance = _trimmed(values)
            centre += sign * float(own_mean)
            variance += float(own_variance)
    usable = variances > 0
    ts = (means[usable] - centre) / np.sqrt(variances[usable])
    tail = 100 * (1 - confidence) / 2
    least, most = np.percentile(ts, [tail, 100 - tail]) if len(ts) else (0.0, 0.0)
    own = math.sqrt(variance)
    return float(max(most, 0)) * own, float(max(-least, 0)) * own


def _trimmed(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the trimmed means of the last axis, and their variances (Tukey and McLaughlin)."""
    n = values.shape[-1]
    cut = int(TRIMMED * n)
    ranked = np.sort(values, axis=-1)
    kept = ranked[..., cut : n - cut]
    pulled_in = np.clip(ranked, kept[..., :1], kept[..., -1:])
    spread = pulled_in.var(axis=-1, ddof=1) if n > 1 else np.zeros(values.shape[:-1])
    return kept.mean(axis=-1), spread / (n * (1 - 2 * TRIMMED) ** 2)


def _days_half(logs: np.ndarray, columns: Sequence[int], confidence: float) -> float:
    """Return half the interval that the fleet's variation from day to day gives by itself."""
    column = Counter(columns).most_common(1)[0][0]
    sides = []
    for side in (logs[:, :column], logs[:, column:]):
        known = side[:, np.isfinite(side).any(axis=0)]
        rows = known[np.isfinite(known).any(axis=1)]
        own = rows - np.nanmedian(rows, axis=1)[:, None]
        sides.append(np.nanmedian(own, axis=0))
    variance = sum(float(days.var(ddof=1)) / len(days) for days in sides) * math.pi / 2
    return t_quantile(min(map(len, sides)) - 1, confidence) * math.sqrt(variance)
