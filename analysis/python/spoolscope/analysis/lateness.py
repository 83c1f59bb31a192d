"""Lateness of the calls of a replay, by its cause."""

from spoolscope.analysis.latency import Curve, curve
from spoolscope.analysis.outcomes import Run

BY_TARGET, BY_MACHINE = "late by the target", "late by the machine"
FEWEST = 100
"""Least number of calls for which a distribution is drawn."""


def lateness(run: Run) -> list[Curve]:
    """Return the distributions of both parts of lateness, over the calls that were made.

    The target makes a call late where calls that it depends on took longer than recorded; the
    machine where it did not run its thread in time. Nothing is returned if no pace was kept.
    """
    parts = {BY_TARGET: run.late_ns, BY_MACHINE: run.late_by_machine_ns}
    if any(len(late) == 0 for late in parts.values()):
        return []
    made = {name: late[late >= 0] for name, late in parts.items()}
    return [curve(name, late) for name, late in made.items() if len(late) >= FEWEST]
