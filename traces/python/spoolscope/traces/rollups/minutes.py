"""Minutes of one host: how much of the time they cover, and what is missing or counted twice."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spoolscope.traces.rollups.names import DAY_S, MINUTE_S

MINUTE_NS = MINUTE_S * 1_000_000_000

STEP_NS = 1_000_000_000
"""Least change of the wall clock that is stated: time servers make smaller ones every day."""

SLACK_NS = 1_000_000_000
"""Time by which the parts of a minute may add up to more than a minute."""

ASTRAY_S = 366 * DAY_S
"""Least time without a minute before which minutes are of a wrong clock: of 1970, or of a build."""

_TEXTS = ("recorder_id", "boot_id")
COLUMNS = (
    *_TEXTS,
    "seq",
    "minute_s",
    "dev",
    "covered_ns",
    "clock_step_ns",
    "calls",
    "lost",
)
"""Columns of ``minutes`` that are needed."""


@dataclass(frozen=True)
class HostCoverage:
    """The part of the time of one host that its minutes cover.

    Attributes:
        host: Its name.
        first_s: Start of its first minute that is not astray, since the epoch.
        last_s: End of its last minute.
        minutes: Number of minutes, of all recorders.
        covered_ns: Time from the first one on for which a recorder was on, ns: what two of them
            cover counts once.
        recorders: Runs of the recorder.
        missing: Minutes that a recorder numbered, but that are not there.
        calls: Calls that were summed.
        lost: Calls that are in no row.
        clock_steps: Minutes in which the wall clock was set by a second or more.
        largest_step_ns: The largest of these changes, ns; negative: back.
        twice: Minutes of a spool that are covered more than once: the clock was set back, or two
            recorders had the name of this host at the same time.
        rivals: Those of ``twice`` that two recorders have, and minutes that two machines have,
            each for its own spools.
        future: Minutes that were not over when this was found.
        astray: Minutes that lie over a year before all others.
    """

    host: str
    first_s: int
    last_s: int
    minutes: int
    covered_ns: int
    recorders: int
    missing: int
    calls: int
    lost: int
    clock_steps: int
    largest_step_ns: int
    twice: int
    rivals: int
    future: int
    astray: int

    @property
    def share(self) -> float:
        """Covered part of the time from the first minute to the last one."""
        return self.covered_ns / max((self.last_s - self.first_s) * 1_000_000_000, 1)


Ints = npt.NDArray[np.int64]


def coverage_of(host: str, minutes: pa.Table, now_s: float) -> HostCoverage:
    """Return what the minutes of a host cover.

    Args:
        host: Its name.
        minutes: COLUMNS of all its minutes, at least one.
        now_s: Time since the epoch.
    """
    of = {name: _numbers(minutes, name) for name in COLUMNS}
    ordered = np.lexsort((of["dev"], of["seq"], of["recorder_id"]))
    of = {name: values[ordered] for name, values in of.items()}
    new_recorder = _differs(of["recorder_id"])
    starts = np.flatnonzero(new_recorder | _differs(of["seq"]))
    once = {name: values[starts] for name, values in of.items()}
    once["covered_ns"] = np.maximum.reduceat(of["covered_ns"], starts)
    step = _steps(once)
    first_s = _first(once["minute_s"])
    twice, rivals = _twice(of, once)
    return HostCoverage(
        host=host,
        first_s=first_s,
        last_s=int(of["minute_s"].max()) + MINUTE_S,
        minutes=len(starts),
        covered_ns=_covered(once, first_s),
        recorders=int(new_recorder.sum()),
        missing=_missing(once["recorder_id"], once["seq"]),
        calls=int(of["calls"].sum()),
        lost=int(of["lost"].sum()),
        clock_steps=int((step != 0).sum()),
        largest_step_ns=int(step[np.abs(step).argmax()]),
        twice=twice,
        rivals=rivals,
        future=int((once["minute_s"] > now_s).sum()),
        astray=int((once["minute_s"] < first_s).sum()),
    )


def _numbers(minutes: pa.Table, name: str) -> Ints:
    """Return a column; equal texts become equal numbers."""
    column = minutes[name].combine_chunks()
    if name in _TEXTS:
        column = column.dictionary_encode().indices
    return np.asarray(column.to_numpy(zero_copy_only=False), np.int64)


def _first(minute_s: Ints) -> int:
    """Return the first minute after the last long time without any."""
    times = np.unique(minute_s)
    long = np.flatnonzero(np.diff(times) > ASTRAY_S)
    return int(times[long[-1] + 1 if len(long) else 0])


def _covered(of: dict[str, Ints], first_s: int) -> int:
    """Return the time that minutes cover from ``first_s`` on.

    Two recorders at once cover no more than the minute. One that was stopped has a longer minute.
    """
    order = np.lexsort((of["seq"], of["recorder_id"], of["minute_s"]))
    order = order[of["minute_s"][order] >= first_s]
    own = of["covered_ns"][order]
    starts = np.flatnonzero(_differs(of["minute_s"][order]))
    before = np.cumsum(own) - own
    before -= np.repeat(before[starts], np.diff([*starts, len(own)]))
    room = np.maximum(MINUTE_NS - before, 0)
    return int(np.where(before == 0, own, np.minimum(own, room)).sum())


def _differs(values: npt.NDArray[np.integer]) -> npt.NDArray[np.bool_]:
    """Return True for each value that is not its predecessor's, and for the first one."""
    return np.concatenate([[True], values[1:] != values[:-1]])


def _missing(recorder: npt.NDArray[np.integer], seq: Ints) -> int:
    """Return the number of holes in the numbers of each recorder's minutes."""
    same = recorder[1:] == recorder[:-1]
    return int(np.where(same, np.diff(seq) - 1, 0).sum())


def _steps(of: dict[str, Ints]) -> Ints:
    """Return the change of the wall clock in each minute, ns; 0 if it is small.

    The recorder states it; if it does not, the times of numbered minutes show it.
    """
    states = np.abs(of["clock_step_ns"]) >= STEP_NS
    late_ns = (np.diff(of["minute_s"]) - MINUTE_S * np.diff(of["seq"])) * 1_000_000_000
    # A recorder that was stopped for minutes makes one long minute of them.
    late_ns -= np.maximum(of["covered_ns"][:-1] - MINUTE_NS, 0)
    # A step in a minute is seen in the time of the next one.
    counts = ~_differs(of["recorder_id"])[1:] & ~states[1:] & ~states[:-1]
    # A minute that begins a little late has the time of the next one.
    counts &= np.abs(late_ns) > MINUTE_NS + SLACK_NS
    shown = np.concatenate([[0], np.where(counts, late_ns, 0)])
    return np.where(states, of["clock_step_ns"], shown)


def _twice(of: dict[str, Ints], once: dict[str, Ints]) -> tuple[int, int]:
    """Return the minutes of a spool that are covered twice, and the minutes of rivals."""
    twice, rivals = _shared(of, ("dev", "minute_s"), "recorder_id")
    # Two machines seldom have one device: their starts tell them apart.
    _, machines = _shared(once, ("minute_s",), "boot_id")
    return len(twice), len(np.union1d(rivals, machines))


def _shared(of: dict[str, Ints], keys: tuple[str, ...], owner: str) -> tuple[Ints, Ints]:
    """Return the minutes that rows of equal keys cover twice, and those of several owners."""
    order = np.lexsort([of[key] for key in keys])
    starts = np.flatnonzero(np.any([_differs(of[key][order]) for key in keys], axis=0))
    covered = np.add.reduceat(of["covered_ns"][order], starts)
    n = np.diff([*starts, len(order)])
    own = of[owner][order]
    several = np.minimum.reduceat(own, starts) != np.maximum.reduceat(own, starts)
    # One row may have a long minute, if its recorder was stopped.
    twice = (n > 1) & (covered > MINUTE_NS + SLACK_NS)
    minute_s = of["minute_s"][order][starts]
    return minute_s[twice], minute_s[twice & several]
