"""Minutes of one host: how much of the time they cover, and what is missing or counted twice."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spoolscope.traces.rollups.names import MINUTE_S

MINUTE_NS = MINUTE_S * 1_000_000_000

STEP_NS = 1_000_000_000
"""Least change of the wall clock that is stated: time servers make smaller ones every day."""

SLACK_NS = 1_000_000_000
"""Time by which the parts of a minute may add up to more than a minute."""

COLUMNS = (
    "recorder_id",
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
        first_s: Start of its first minute, since the epoch.
        last_s: End of its last minute.
        minutes: Number of minutes, of all recorders.
        covered_ns: Time for which a recorder was on, ns.
        recorders: Runs of the recorder.
        missing: Minutes that a recorder numbered, but that are not there.
        calls: Calls that were summed.
        lost: Calls that are in no row.
        clock_steps: Minutes in which the wall clock was set by a second or more.
        largest_step_ns: The largest of these changes, ns; negative: back.
        twice: Minutes of a spool that are covered more than once: the clock was set back, or two
            recorders had the name of this host at the same time.
        rivals: Those of ``twice`` that two recorders have.
        future: Minutes that were not over when this was found.
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
    of = {name: minutes[name].to_numpy() for name in COLUMNS[1:]}
    recorder = minutes["recorder_id"].combine_chunks().dictionary_encode().indices.to_numpy()
    ordered = np.lexsort((of["dev"], of["seq"], recorder))
    recorder, of = recorder[ordered], {name: values[ordered] for name, values in of.items()}
    new_recorder = _differs(recorder)
    new_minute = new_recorder | _differs(of["seq"])
    starts = np.flatnonzero(new_minute)
    step = _steps(recorder[starts], {name: values[starts] for name, values in of.items()})
    twice, rivals = _twice(recorder, of)
    return HostCoverage(
        host=host,
        first_s=int(of["minute_s"].min()),
        last_s=int(of["minute_s"].max()) + MINUTE_S,
        minutes=len(starts),
        covered_ns=int(np.maximum.reduceat(of["covered_ns"], starts).sum()),
        recorders=int(new_recorder.sum()),
        missing=_missing(recorder[starts], of["seq"][starts]),
        calls=int(of["calls"].sum()),
        lost=int(of["lost"].sum()),
        clock_steps=int((step != 0).sum()),
        largest_step_ns=int(step[np.abs(step).argmax()]),
        twice=twice,
        rivals=rivals,
        future=int((of["minute_s"][starts] > now_s).sum()),
    )


def _differs(values: npt.NDArray[np.integer]) -> npt.NDArray[np.bool_]:
    """Return True for each value that is not its predecessor's, and for the first one."""
    return np.concatenate([[True], values[1:] != values[:-1]])


def _missing(recorder: npt.NDArray[np.integer], seq: Ints) -> int:
    """Return the number of holes in the numbers of each recorder's minutes."""
    same = recorder[1:] == recorder[:-1]
    return int(np.where(same, np.diff(seq) - 1, 0).sum())


def _steps(recorder: npt.NDArray[np.integer], of: dict[str, Ints]) -> Ints:
    """Return the change of the wall clock in each minute, ns; 0 if it is small.

    The recorder states it; if it does not, the times of numbered minutes show it.
    """
    stated = of["clock_step_ns"]
    late_s = np.diff(of["minute_s"]) - MINUTE_S * np.diff(of["seq"])
    shown = np.concatenate([[0], np.where(recorder[1:] == recorder[:-1], late_s, 0)])
    # A minute that begins a little late has the time of the next one.
    shown = np.where(np.abs(shown) > MINUTE_S, shown * 1_000_000_000, 0)
    return np.where(np.abs(stated) >= STEP_NS, stated, shown)


def _twice(recorder: npt.NDArray[np.integer], of: dict[str, Ints]) -> tuple[int, int]:
    """Return the minutes of a spool that are covered twice, and those that two recorders have."""
    ordered = np.lexsort((recorder, of["minute_s"], of["dev"]))
    starts = np.flatnonzero(_differs(of["dev"][ordered]) | _differs(of["minute_s"][ordered]))
    covered = np.add.reduceat(of["covered_ns"][ordered], starts)
    first = np.minimum.reduceat(recorder[ordered], starts)
    last = np.maximum.reduceat(recorder[ordered], starts)
    twice = covered > MINUTE_NS + SLACK_NS
    return int(twice.sum()), int((twice & (first != last)).sum())
