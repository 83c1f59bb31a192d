"""Estimates for the runs of a replay: time, from the finished ones, and disk space."""

import shutil
from collections.abc import Callable, Mapping, Sequence
from statistics import fmean
from typing import Any, Protocol

from spoolscope.replay.job import Job, Slot, blocks
from spoolscope.replay.machine import guest_facts
from spoolscope.replay.one_run import image_size
from spoolscope.replay.targets import MIB, grows_to
from spoolscope.traces.errors import SpoolscopeError

# Bytes that a run leaves for each call: outcomes, and its trace if it is recorded. The sample's
# runs leave 10 and 46.
OUTCOME_BYTES, TRACE_BYTES = 16, 64

Row = Mapping[str, Any]


def check_room(job: Job, runs: Sequence[Slot]) -> None:
    """Make sure before the first run that there is room for the worst candidate and all results.

    Raises:
        SpoolscopeError: there is not.
    """
    age = job.begin.age
    size = image_size(job)
    if job.devices is not None:
        smallest = max((slot.candidate.smallest for slot in runs), default=0)
        job.devices.check_room(max(size, smallest))
    grown = {
        slot.candidate.name: grows_to(slot.candidate, size, age)
        for slot in runs
        if slot.candidate.directory is None and job.devices is None
    }
    a_call = OUTCOME_BYTES + (TRACE_BYTES if job.recorder is not None else 0)
    left = len(runs) * job.summary.syscalls * a_call
    worst = max(grown, key=grown.__getitem__, default=None)
    places = {job.out: left, job.work: 0 if worst is None else grown[worst]}
    if job.out.stat().st_dev == job.work.stat().st_dev:
        places = {job.work: sum(places.values())}
    in_memory = (guest_facts() or {}).get("icount")
    for place, needed in places.items():
        free = shutil.disk_usage(place).free
        if free < needed:
            works = place == job.work
            image = f"the image of {worst} and " if worst and works else ""
            raise SpoolscopeError(
                f"{place.parent if works else place} has {free // MIB:,} MiB free, {image}what "
                f"{len(runs)} runs leave may take {needed // MIB:,} MiB",
                remedy="give more --memory"
                if in_memory
                else "give --work DIR and -o elsewhere, or fewer rounds",
            )


class Timing(Protocol):
    """Receiver of the progress of a replay, run by run."""

    def begin(self, runs: Sequence[Slot], rows: Sequence[Row], guess_s: float) -> None:
        """Receive all runs before the first is made.

        Args:
            runs: All of them, in order.
            rows: Rows of runs that were finished before.
            guess_s: Estimated time of a run as long as none is finished.
        """

    def after(self, row: Row) -> None:
        """Receive the row of the next finished run."""


class Expected:
    """Estimates the time of the remaining runs: for each candidate, that of its runs before.

    The time to boot machines, for the runs of one round on one kernel, is included.
    """

    def __init__(self, tell: Callable[[str], None]) -> None:
        """Let ``tell`` be called with a line before the first of several runs, and after each."""
        self._tell = tell
        self._runs: Sequence[Slot] = []
        self._done = self._booted_for = 0
        self._guess_s = 0.0
        self._took_s: dict[str, list[float]] = {}
        self._boots_s: list[float] = []

    def begin(
        self, runs: Sequence[Slot], rows: Sequence[Row], guess_s: float, boot_s: float = 0.0
    ) -> None:
        """Report all runs; see ``Timing``. Booting a machine for the first one took ``boot_s``."""
        self._runs, self._done, self._guess_s = runs, len(rows), guess_s
        for row in rows:
            # A clock that counts instructions does not show real time.
            counted = (row.get("machine") or {}).get("icount")
            self._note(row["candidate"], guess_s if counted else row["wall_ns"] / 1e9)
        if boot_s:
            self.booted(boot_s)
        candidates = len({slot.candidate.name for slot in runs})
        of = f"{len(runs)} runs on {candidates} candidate{'s' if candidates > 1 else ''}"
        done = f"{len(rows)} of {of} are finished, the others take" if rows else f"{of} take"
        if len(runs) > 1:
            self._tell(f"{done} about {_shown(self._left_s())}")

    def booted(self, seconds: float) -> None:
        """Take note that a machine is ready for the next runs of one round on one kernel."""
        self._boots_s.append(seconds)
        self._booted_for = self._done + len(next(blocks(self._runs[self._done :]), []))

    def after(self, row: Row) -> None:
        """Report a finished run; see ``Timing``."""
        self.took(row["candidate"], row["wall_ns"] / 1e9)

    def took(self, candidate: str, seconds: float) -> None:
        """Report the next run and the time that it took."""
        self._note(candidate, seconds)
        self._done += 1
        of = len(self._runs)
        left = "" if self._done == of else f", about {_shown(self._left_s())} left"
        name = self._runs[self._done - 1].name
        if of > 1:
            self._tell(f"{name} took {_shown(seconds)}; {self._done} of {of} runs{left}")

    def _note(self, candidate: str, seconds: float) -> None:
        self._took_s.setdefault(candidate, []).append(seconds)

    def _left_s(self) -> float:
        known = [took for taken in self._took_s.values() for took in taken]
        usual = fmean(known) if known else self._guess_s
        names = (slot.candidate.name for slot in self._runs[self._done :])
        runs_s = sum(fmean(self._took_s.get(name, [usual])) for name in names)
        boots = len(list(blocks(self._runs[max(self._done, self._booted_for) :])))
        return runs_s + (boots * fmean(self._boots_s) if self._boots_s else 0.0)


def _shown(seconds: float) -> str:
    if seconds < 100:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 100 * 60 else f"{seconds / 3600:.1f} h"
