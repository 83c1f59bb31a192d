"""Comparison of times that two programs or two runs measured, on a machine with other load.

Between two programs at one tracepoint, or between the clock readings of a program and of the
recorder, the host can take the CPU away: 1.5 ms were seen in one of 40 sleeps. Such a difference
does not recur, while an error of the recorder does. So two of three runs of such a test must hold,
each with fresh fixtures; a wrong count or name fails it at once.
"""

import pytest


class TimesDifferError(AssertionError):
    """Two measurements of one time differ by more than the sum of their errors."""


compares_times = pytest.mark.times(misses=TimesDifferError)


def alike(
    what: str, theirs: float, ours: float, *, rel: float, least: float = 0, more: float = 0
) -> None:
    """Raise TimesDifferError unless theirs equals ours within rel * ours, or within least.

    Theirs may exceed that by ``more``, if it includes time that ours does not.
    """
    off, bound = float(theirs) - float(ours), max(rel * float(ours), float(least))
    if not -bound <= off <= bound + more:
        raise TimesDifferError(f"{what}: theirs {theirs}, ours {ours}, bound {bound:.6g}")
