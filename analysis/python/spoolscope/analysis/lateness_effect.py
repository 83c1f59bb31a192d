"""The effect of lateness by the machine on one verdict.

On an ordinary machine some calls are issued late in every run, because a task had to wait for a
CPU. That matters if it decides which candidate is better. So the verdict is made once more
without the calls that were late on either side: if it is the same, and most calls are left, the
runs are faithful for this question.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from spoolscope.analysis.outcomes import Run
from spoolscope.analysis.stats import Estimate, word
from spoolscope.analysis.wording import change, percent

LATE_NS = 100_000
"""Lateness above which a call is late: the limit of a run's certificate for 99 % of calls."""
MOST_LATE = 0.5
"""Largest share of late calls for which the rest is representative."""

EXCUSED = ("lateness_by_machine_p99_ns", "in_flight_emd_by_mean")
"""Goals of a certificate that runs may miss if lateness has no effect on the verdict."""

Summed = Callable[[Sequence[np.ndarray], Sequence[np.ndarray]], Estimate]


@dataclass(frozen=True)
class LatenessEffect:
    """The verdict on a pair without calls that the machine made late.

    Attributes:
        late_share: Share of the calls that were late on either side, mean over the rounds.
        without: The ratio of times in the other calls; word is the verdict on it.
        holds: True if the verdict on all calls is the same, with the same candidate ahead (if they
            are not equivalent), and at least half of the calls are left.
    """

    late_share: float
    without: Estimate
    word: str
    holds: bool

    @property
    def sentence(self) -> str:
        """The effect in words, for a user."""
        late = percent(self.late_share)
        found = f"{change(self.without.ratio)} time, {self.word}"
        if self.holds:
            return (
                f"Faithful for this question: without the {late} of calls that the machine made "
                f"late it is {found} as well."
            )
        if self.late_share > MOST_LATE:
            return f"The machine made {late} of the calls late: too many to tell what that did."
        return f"Lateness decides: without the {late} of calls that the machine made late {found}."


def lateness_effect(
    matched: Sequence[tuple[Run, Run]], calls: np.ndarray, whole: Estimate, estimate: Summed
) -> LatenessEffect | None:
    """Make the verdict on a pair again without late calls; None if no pace was kept.

    Args:
        matched: Runs of both, by round.
        calls: The calls compared.
        whole: The ratio of the times in all these calls.
        estimate: Function that makes an estimate from the times in calls of each run of both.
    """
    if any(not len(run.late_by_machine_ns) for pair in matched for run in pair):
        return None
    late = [
        (c.late_by_machine_ns[calls] > LATE_NS) | (r.late_by_machine_ns[calls] > LATE_NS)
        for c, r in matched
    ]
    left = [
        [
            np.where(gone, 0, pair[side].latency_ns[calls])
            for pair, gone in zip(matched, late, strict=True)
        ]
        for side in (0, 1)
    ]
    found = estimate(left[0], left[1])
    share = float(np.mean([gone.mean() for gone in late])) if len(calls) and late else 0.0
    again = word(found)
    alike = again == word(whole) and (
        again == "equivalent"
        or (again != "inconclusive" and (found.ratio < 1) == (whole.ratio < 1))
    )
    return LatenessEffect(share, found, again, holds=alike and share <= MOST_LATE)
