"""One replay: the plan, the candidates in their rounds, and all that the runs share."""

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any

from spoolscope.replay.age import Age
from spoolscope.replay.candidates import Candidate
from spoolscope.replay.disks import Disks
from spoolscope.replay.engine import Content
from spoolscope.replay.modelled import Player
from spoolscope.replay.outcomes import Plan
from spoolscope.replay.pace import Pace
from spoolscope.replay.plan import PlanSummary
from spoolscope.replay.recorded_cache import Memory
from spoolscope.traces.phases import Progress
from spoolscope.traces.trace import Trace

Recorder = Callable[[Path, list[str], Path, Progress], int]
"""Runs a command while recording a mount into a trace, and returns its exit status."""

CACHES = RECORDED, COLD, WARM = "recorded", "cold", "warm"


@dataclass(frozen=True)
class Begin:
    """The state in which every replay begins.

    Attributes:
        cache: recorded: what the recording found in memory is there (see ``recorded_cache``);
            cold: nothing of the filesystem is; warm: everything was read once.
        content: Properties of the data of files.
        age: Churn before the fixture is built; none by default.
    """

    cache: str = RECORDED
    content: Content = field(default_factory=Content)
    age: Age | None = None


@dataclass(frozen=True)
class Job:
    """All that the runs of one replay share.

    Attributes:
        whole_life: A used filesystem is checked and emptied.
        reference: Candidate that the others are compared with; None if that is left open.
        player: Plays device models.
        repeats: How often a disturbed run is made again at most.
        workers: Result of ``workers.pool``; None if jobs stay with their processes.
        memory: Names and data in memory when the recording began, if replays begin with them.
    """

    trace: Trace
    plan_file: Path
    summary: PlanSummary
    plan: Plan
    work: Path
    out: Path
    pace: Pace
    names: int
    fixture_bytes: int
    peak_bytes: int
    recorder: Recorder | None
    begin: Begin
    rounds: int
    what_if: dict[str, Any] | None
    order: str
    whole_life: bool = True
    reference: str | None = None
    player: Player | None = None
    devices: Disks | None = None
    memory: Memory | None = None
    repeats: int = 0
    workers: dict[str, Any] | None = None

    @property
    def users(self) -> int:
        """Number of users, as a multiple of the recorded ones."""
        scale = self.what_if and self.what_if["scale"]
        return int(scale["users"]) if scale else 1


@dataclass(frozen=True)
class Slot:
    """One run: its candidate, its round, and its position in the round."""

    candidate: Candidate
    round: int
    position: int

    @property
    def name(self) -> str:
        """Directory of the run below the output."""
        return f"{self.candidate.label}-r{self.round}"


def slots(candidates: list[Candidate], rounds: int, seed: int) -> list[Slot]:
    """Return every candidate once per round, in an order the seed fixes.

    Within a round, candidates of one kernel follow each other: they run in one machine.
    """
    generator = random.Random(seed)
    made = []
    for number in range(1, rounds + 1):
        order = list(candidates)
        generator.shuffle(order)
        kernels = [candidate.kernel for candidate in order]
        order.sort(key=lambda candidate: kernels.index(candidate.kernel))
        made += [Slot(candidate, number, place) for place, candidate in enumerate(order, 1)]
    return made


def blocks(runs: Sequence[Slot]) -> Iterator[list[Slot]]:
    """Yield the runs of one round on one kernel that follow each other."""
    for _, block in groupby(runs, key=lambda slot: (slot.round, slot.candidate.kernel)):
        yield list(block)
