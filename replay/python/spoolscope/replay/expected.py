"""What the runs of a replay will take: time, by what the finished ones took, and room."""

import shutil
from collections.abc import Sequence
from statistics import fmean
from typing import Any

from spoolscope.replay.job import Job, Slot
from spoolscope.replay.one_run import image_size, running_s
from spoolscope.replay.targets import MIB, grows_to
from spoolscope.traces.errors import SpoolscopeError

# What a run leaves, bytes a call: outcomes, and its trace if it is recorded. The sample's runs
# leave 10 and 46.
OUTCOME_BYTES, TRACE_BYTES = 16, 64


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
    for place, needed in places.items():
        free = shutil.disk_usage(place).free
        if free < needed:
            works = place == job.work
            image = f"the image of {worst} and " if worst and works else ""
            raise SpoolscopeError(
                f"{place.parent if works else place} has {free // MIB:,} MiB free, {image}what "
                f"{len(runs)} runs leave may take {needed // MIB:,} MiB",
                remedy="give --work DIR and -o elsewhere, or fewer rounds",
            )


class Expected:
    """How long the runs that are left will take: as long as those before, of each candidate."""

    def __init__(self, job: Job, runs: Sequence[Slot]) -> None:
        self._runs = runs
        self._guess_s = sum(running_s(job).values())
        self._took_s: dict[str, list[float]] = {}

    def begin(self, rows: Sequence[dict[str, Any]]) -> str:
        """Return what to say before the first run; ``rows`` are of runs that are finished."""
        for row in rows:
            self._note(row)
        candidates = len({slot.candidate.name for slot in self._runs})
        of = f"{len(self._runs)} runs on {candidates} candidate{'s' if candidates > 1 else ''}"
        done = f"{len(rows)} of {of} are finished, the others take" if rows else f"{of} take"
        return f"{done} about {_shown(self._left_s(len(rows)))}"

    def after(self, row: dict[str, Any], done: int) -> str:
        """Return what to say after a run, the ``done``-th."""
        self._note(row)
        left = "" if done == len(self._runs) else f", about {_shown(self._left_s(done))} left"
        name = self._runs[done - 1].name
        return f"{name} took {_shown(row['wall_ns'] / 1e9)}; {done} of {len(self._runs)} runs{left}"

    def _note(self, row: dict[str, Any]) -> None:
        self._took_s.setdefault(row["candidate"], []).append(row["wall_ns"] / 1e9)

    def _left_s(self, done: int) -> float:
        known = [took for taken in self._took_s.values() for took in taken]
        usual = fmean(known) if known else self._guess_s
        names = (slot.candidate.name for slot in self._runs[done:])
        return sum(fmean(self._took_s.get(name, [usual])) for name in names)


def _shown(seconds: float) -> str:
    if seconds < 100:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 100 * 60 else f"{seconds / 3600:.1f} h"
