"""Measures by which hosts are judged, of each spool and day, and the rule for days that count.

A measure is a time per call or per wait, so that a host with more calls is not a slower one.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spoolscope.analysis.causes import AT_DISK, BETWEEN_PROGRAMS, CAUSES, ENDS_WITH_REQUEST
from spoolscope.analysis.latency import SYSCALL_CLASSES
from spoolscope.analysis.wording import percent
from spoolscope.traces.rollups.minutes import ASTRAY_S
from spoolscope.traces.rollups.names import DAY_S
from spoolscope.traces.rollups.schema import CALL

LEAST_EVENTS = 100
"""Fewest calls or waits of a day for a mean of them."""
LEAST_COVERED = 0.5
"""Least part of a day that a recorder was on, for the day to be judged."""
MOST_LOST = 0.05
DAY_NS = DAY_S * 10**9
ASTRAY_DAYS = 30
"""Least number of days without a minute before which days are astray, if none of them counts."""
ASTRAY = "long before all others, by a wrong clock"
NOT_OVER = "not over yet"

DISK = tuple(dict.fromkeys((*AT_DISK, *ENDS_WITH_REQUEST)))
LOOKUP = ("dir_lock", *(name for name, cause in CAUSES.items() if cause.group == "read"))


@dataclass(frozen=True)
class Measure:
    """One measure: a time by a number of events.

    Attributes:
        label: Short name for tables.
        meaning: What it is a mean of, for sentences.
        causes: Causes that the time can be of.
    """

    label: str
    meaning: str
    causes: tuple[str, ...]


CHARGED = tuple(name for name in CAUSES if name not in BETWEEN_PROGRAMS)
MEASURES = {
    "sync": Measure("sync call", "the time of a call that syncs", CHARGED),
    "disk": Measure("wait for the disk", "one wait for the disk or for a commit", DISK),
    "lookup": Measure("look-ups", "the wait for directories and inodes in a call", LOOKUP),
    "cpu": Measure("CPU", "the CPU time of a call", ("cpu",)),
    "call": Measure("call", "the time of a call without waits of programs for programs", CHARGED),
}
PRIMARY = "sync"
"""The measure that decides before and after; the others stand beside it."""


@dataclass(frozen=True)
class Spool:
    """One spool of one host."""

    host: str
    dev: int
    fs: str


@dataclass(frozen=True)
class Fleet:
    """The measures of all spools and days.

    Attributes:
        spools: Rows of the arrays below.
        dates: Their columns: every day from the first to the last.
        values: By measure, ns for each spool and day; nan if it has too few events, or does not
            count.
        calls: Calls of each spool and day, of days that count.
        kernels: Kernel of each spool and day; "" if it was not seen.
        options: Mount options likewise.
        seen: True for each spool and day that has a row.
        counted: True for each that counts.
        over: True for each day that is over.
        left_out: Days of spools that do not count, by the reason; those astray have no column.
    """

    spools: Sequence[Spool]
    dates: Sequence[str]
    values: Mapping[str, np.ndarray]
    calls: np.ndarray
    kernels: np.ndarray
    options: np.ndarray
    seen: np.ndarray
    counted: np.ndarray
    over: np.ndarray
    left_out: Mapping[str, int]

    @property
    def whole(self) -> bool:
        """True if every day that is over counts for every spool."""
        return bool(self.counted[:, self.over].all()) and not self.left_out.get(ASTRAY)


def measured(
    days: pa.Table, causes: pa.Table, syscalls: pa.Table, today: str | None = None
) -> Fleet:
    """Arrange results of ``conditions``, ``causes_by_day`` and ``syscalls_by_day``.

    Args:
        days: What was seen of each spool and day.
        causes: Its time by cause.
        syscalls: Its calls by name.
        today: The day that is not over, as YYYY-MM-DD; default: the clock's.
    """
    today = today or datetime.now(UTC).date().isoformat()
    first = _first_day(days)
    n_all = len(days)
    days, causes, syscalls = (_since(first, table) for table in (days, causes, syscalls))
    facts = days.to_pydict()
    keys = sorted(set(zip(facts["host"], facts["dev"], strict=True)))
    last_fs = dict(zip(zip(facts["host"], facts["dev"], strict=True), facts["fs"], strict=True))
    rows = {key: row for row, key in enumerate(keys)}
    dates = _all_days(facts["date"])
    columns = {day: column for column, day in enumerate(dates)}
    shape = len(keys), len(dates)

    def places(table: Mapping[str, list[object]]) -> tuple[np.ndarray, np.ndarray]:
        pairs = zip(table["host"], table["dev"], strict=True)
        row = np.fromiter((rows[pair] for pair in pairs), np.int64, len(table["host"]))
        column = (columns[str(day)] for day in table["date"])
        return row, np.fromiter(column, np.int64, len(table["date"]))

    at = places(facts)
    kernels, options = np.full(shape, "", object), np.full(shape, "", object)
    kernels[at], options[at] = facts["kernel"], facts["options"]
    seen, good = np.zeros(shape, bool), np.zeros(shape, bool)
    seen[at] = True
    counts, left_out = _counting(days, today)
    left_out[ASTRAY] = n_all - len(days)
    good[at] = counts
    summed = _Sums(shape, places, causes.to_pydict(), syscalls.to_pydict())
    values = {}
    for name, make in _MAKERS.items():
        total, events = make(summed)
        with np.errstate(divide="ignore", invalid="ignore"):
            mean = np.where((events >= LEAST_EVENTS) & (total > 0) & good, total / events, np.nan)
        values[name] = mean
    calls = np.where(good, summed.calls()[1], 0)
    spools = [Spool(host, dev, last_fs[host, dev]) for host, dev in keys]
    over = np.array([day < today for day in dates], bool)
    return Fleet(spools, dates, values, calls, kernels, options, seen, good, over, left_out)


def _first_day(days: pa.Table) -> str:
    """Return the first day that is not astray: a clock of 1970 would make the span 20,000 days."""
    dates = days["date"].to_pylist()
    good = {day for day, counts in zip(dates, _counting(days)[0], strict=True) if counts}
    each = sorted({*dates})
    first = 0
    for n, (before, day) in enumerate(pairwise(each), 1):
        gap = (date.fromisoformat(day) - date.fromisoformat(before)).days
        none = good.isdisjoint(each[first:n])
        if gap * DAY_S > ASTRAY_S or (none and gap > ASTRAY_DAYS):
            first = n
    return each[first] if each else ""


def _since(first: str, table: pa.Table) -> pa.Table:
    return table.filter(pc.greater_equal(table["date"], first))


def _all_days(seen: Sequence[str]) -> list[str]:
    if not seen:
        return []
    first, last = date.fromisoformat(min(seen)), date.fromisoformat(max(seen))
    return [date.fromordinal(n).isoformat() for n in range(first.toordinal(), last.toordinal() + 1)]


def _counting(days: pa.Table, today: str = "~") -> tuple[np.ndarray, dict[str, int]]:
    """Return which rows of days are judged, and the number of others by reason."""
    column = {name: days[name].to_numpy() for name in ("covered_ns", "lost", "calls", "twice")}
    all_calls = column["lost"] + column["calls"]
    little, lossy = percent(LEAST_COVERED, 0), percent(MOST_LOST, 0)
    covers_little = column["covered_ns"] < LEAST_COVERED * DAY_NS
    reasons = {
        NOT_OVER: covers_little & pc.greater_equal(days["date"], today).to_numpy(),
        f"covered less than {little}": covers_little,
        f"over {lossy} of the calls lost": column["lost"] > MOST_LOST * all_calls,
        "minutes there twice": column["twice"] > 0,
    }
    counts = np.ones(len(days), bool)
    left_out = {}
    for reason, hit in reasons.items():
        left_out[reason] = int((hit & counts).sum())
        counts &= ~hit
    return counts, left_out


class _Sums:
    """Sums by spool and day of chosen causes and calls: (ns, events)."""

    def __init__(
        self,
        shape: tuple[int, int],
        places: Callable[[Mapping[str, list[object]]], tuple[np.ndarray, np.ndarray]],
        causes: Mapping[str, list[object]],
        syscalls: Mapping[str, list[object]],
    ) -> None:
        self._shape = shape
        self._tables = {
            "cause": (places(causes), causes),
            "syscall": (places(syscalls), syscalls),
        }

    def of(self, kind: str, names: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """Return the sums of some causes, or of some calls."""
        at, table = self._tables[kind]
        chosen = np.isin(np.array(table[kind], object), names)
        total, events = np.zeros(self._shape), np.zeros(self._shape)
        where = at[0][chosen], at[1][chosen]
        np.add.at(total, where, np.array(table["sum_ns"], np.float64)[chosen])
        np.add.at(events, where, np.array(table["n"], np.float64)[chosen])
        return total, events

    def calls(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the whole time of calls, and their number."""
        return self.of("cause", (CALL,))

    def by_call(self, names: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """Return the time of some causes, and the number of all calls."""
        return self.of("cause", names)[0], self.calls()[1]


_MAKERS: dict[str, Callable[[_Sums], tuple[np.ndarray, np.ndarray]]] = {
    "sync": lambda sums: sums.of("syscall", SYSCALL_CLASSES["sync"]),
    "disk": lambda sums: sums.of("cause", MEASURES["disk"].causes),
    "lookup": lambda sums: sums.by_call(MEASURES["lookup"].causes),
    "cpu": lambda sums: sums.by_call(MEASURES["cpu"].causes),
    "call": lambda sums: sums.by_call(MEASURES["call"].causes),
}
