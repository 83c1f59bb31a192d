"""Comparison of a candidate with a reference: the ratio, its certainty, and the reasons."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from spoolscope.analysis.candidate_runs import Candidate
from spoolscope.analysis.guests import counts_instructions
from spoolscope.analysis.lateness_effect import LatenessEffect, lateness_effect
from spoolscope.analysis.metrics import (
    METRICS,
    PRIMARY,
    WAITING,
    block_sums,
    due_to_end,
    time_blocks,
)
from spoolscope.analysis.outcomes import Replay
from spoolscope.analysis.stats import MINIMUM_EFFECT, Estimate, contradict, paired, within_run, word
from spoolscope.analysis.why import Reason, cause_deltas, reasons


@dataclass(frozen=True)
class Pair:
    """A candidate compared with a reference.

    Attributes:
        candidate: Its name; ``reference`` likewise.
        primary: The ratio of times in calls; ``secondary`` of the other metrics,
            among them the other primary one.
        word: The verdict word on the time in calls; waiting_word on the time from due to end, "" if
            no pace was kept.
        why: The largest differences by cause.
        cause_deltas: Candidate less reference by cause, ns.
        strangers_ns: Candidate less reference of the time that calls waited for a CPU which other
            programs of the machine had; the primary metric contains it, though it is no merit of
            either.
        chance: True if no difference remains without that time.
        lateness: Effect of lateness by the machine on the verdict.
        at_once: True if both were replayed in turns, round by round.
    """

    candidate: str
    reference: str
    primary: Estimate
    secondary: dict[str, Estimate]
    word: str
    why: list[Reason]
    cause_deltas: dict[str, float]
    strangers_ns: float = 0.0
    chance: bool = False
    waiting_word: str = ""
    lateness: LatenessEffect | None = None
    at_once: bool = True

    @property
    def contradicts(self) -> bool:
        """True if the two primary metrics order the candidates differently."""
        return contradict(self.primary, self.secondary[WAITING])


def make_pair(
    replay: Replay,
    values: dict[int, dict[str, float | None]],
    calls: np.ndarray,
    candidate: Candidate,
    reference: Candidate,
) -> Pair:
    """Compare a candidate with a reference.

    Args:
        replay: The replays with their runs.
        values: Every metric of each run, by its id.
        calls: The calls compared.
        candidate: The candidate.
        reference: The reference.
    """
    matched = replay.matched(candidate.name, reference.name)
    estimates = {
        key: paired(
            [values[id(c)][key] or 0.0 for c, _ in matched],
            [values[id(r)][key] or 0.0 for _, r in matched],
        )
        for key in METRICS
    }
    primary = estimates.pop(PRIMARY)

    def in_calls(ours: Sequence[np.ndarray], theirs: Sequence[np.ndarray]) -> Estimate:
        if len(matched) == 1 and replay.trace is not None:
            return _within(replay, calls, [ours[0], theirs[0]])
        return paired([float(ns.sum()) for ns in ours], [float(ns.sum()) for ns in theirs])

    known = all(values[id(run)][PRIMARY] is not None for pair in matched for run in pair)
    counted = any(counts_instructions(run.result) for run in replay.runs)
    if len(matched) == 1 and replay.trace is not None and known and not counted:
        primary = in_calls(*([run.latency_ns[calls]] for run in matched[0]))
        waited = [due_to_end(replay, run, calls) for run in matched[0]]
        measured = [ns for ns in waited if ns is not None]
        if len(measured) == len(waited):
            estimates[WAITING] = _within(replay, calls, measured)
    strangers_ns = candidate.strangers_ns - reference.strangers_ns
    certain = word(primary) != "equivalent"
    chance = certain and _by_chance(candidate, reference)
    faithful = candidate.fidelity.ok and reference.fidelity.ok
    return Pair(
        candidate=candidate.name,
        reference=reference.name,
        primary=primary,
        secondary=estimates,
        word="inconclusive" if chance else word(primary, faithful=faithful),
        why=reasons(
            candidate.table,
            reference.table,
            name=candidate.name,
            against=reference.name,
            fstype=candidate.fstype,
        )
        if candidate.table and reference.table
        else [],
        cause_deltas=cause_deltas(candidate.table, reference.table),
        strangers_ns=strangers_ns,
        at_once=replay.at_once(candidate.name, reference.name),
        chance=chance,
        lateness=None
        if counted or not known
        else lateness_effect(matched, calls, primary, in_calls),
        waiting_word=word(estimates[WAITING], faithful=faithful)
        if estimates[WAITING].n and not counted
        else "",
    )


def _within(replay: Replay, calls: np.ndarray, ns: list[np.ndarray]) -> Estimate:
    """Estimate the ratio of the times of calls in one round."""
    blocks, seed = time_blocks(replay, calls), replay.header.seed or 0
    return within_run(block_sums(ns[0], blocks), block_sums(ns[1], blocks), seed)


def _by_chance(candidate: Candidate, reference: Candidate) -> bool:
    """Return True if no difference remains without the CPU time that other programs took.

    The time in calls is that of the compared calls by the replayer's clock, the taken time that of
    all recorded calls: close enough to doubt a verdict, not to make one.
    """
    ours, theirs = (c.metrics[PRIMARY] or 0.0 for c in (candidate, reference))
    gap = ours - theirs
    left = gap - (candidate.strangers_ns - reference.strangers_ns)
    smaller = abs(left) < abs(gap)
    return smaller and (left * gap <= 0 or abs(left) < MINIMUM_EFFECT * min(ours, theirs))
