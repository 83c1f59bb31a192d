"""A candidate, measured over all rounds of a replay."""

from dataclasses import dataclass
from pathlib import Path

from spoolscope.analysis.fidelity import Fidelity
from spoolscope.analysis.lives import Spread
from spoolscope.analysis.why import Table


@dataclass(frozen=True)
class Candidate:
    """One candidate over all its rounds.

    Attributes:
        name: As given to ``replay --on``.
        fstype: Filesystem; mkfs and mount_options as the replayer used them.
        rounds: Number of runs.
        metrics: {metric: mean over the runs}, None where there are too few events. The mean of the
            primary ones is geometric, as those of ratios are.
        causes: {cause: ns}, mean over the recorded runs; empty if no run was recorded.
        table: The same by family of calls.
        fidelity: Fidelity of its runs.
        makespan_ns: Mean time from the first to the last call.
        strangers_ns: Time that its calls waited for a CPU used by a program outside the replay,
            mean over the recorded runs; it is neither in ``causes`` nor in ``table``.
        directories: Directories of its runs.
        life: Costs of mkfs, filling, check, removal and so on, by the keys of ``MEASURES``.
        damage: Damage that the check of its filesystem found, or None.
        durability: "same" if as usual, else what is weaker and why.
    """

    name: str
    fstype: str
    mkfs: str
    mount_options: str
    rounds: int
    metrics: dict[str, float | None]
    causes: dict[str, float]
    table: Table
    fidelity: Fidelity
    makespan_ns: float
    strangers_ns: float
    directories: list[Path]
    life: dict[str, Spread]
    damage: str | None
    durability: str
