"""The effect that lateness by the machine can have on one verdict.

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
"""A call is late from here on: what the certificate of a run allows one of a hundred calls."""
MOST_LATE = 0.5
"""If more of the calls are late, what is left tells nothing of the whole."""

EXCUSED = ("lateness_by_machine_p99_ns", "in_flight_emd_by_mean")
"""Goals of a certificate that a verdict may miss on which lateness has no effect."""

Summed = Callable[[Sequence[np.ndarray], Sequence[np.ndarray]], Estimate]


@dataclass(frozen=True)
class LatenessEffect:
    """The verdict on a pair without calls that the machine made late.

    Attributes:
        late_share: Part of the calls that were late on either side, mean over the rounds.
        without: The ratio of times in the other calls; word is the verdict on it.
        holds: It is the verdict on all calls, too, and at least half of them are left.
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
    matched: Sequence[tuple[Run, Run]], calls: np.ndarray, said: str, estimate: Summed
) -> LatenessEffect | None:
    """Make the verdict on a pair again without late calls; None where no time was kept.

    Args:
        matched: Runs of both, by round.
        calls: The calls compared.
        said: The word on all of them.
        estimate: Makes an estimate of the times in calls of each run of both.
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
    return LatenessEffect(share, found, again, holds=again == said and share <= MOST_LATE)
