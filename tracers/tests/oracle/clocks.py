"""Times that two programs, or two runs, measured of the same, on a machine that others use, too.

Between two programs at one tracepoint, or between a program's clock and ours, the machine can lose
its CPU to its host: 1.5 ms in one of 40 sleeps has been seen. Such a difference does not come
again; an error of ours does. So a test whose *times* differ is run again from the start, with fresh
fixtures, and has to pass in one of three runs; a wrong count or name fails it at once.
"""

import pytest

in_one_of_three = pytest.mark.flaky(reruns=2, only_rerun="TimesDifferError")


class TimesDifferError(AssertionError):
    """Two measurements of one time differ by more than both can err."""


def alike(
    what: str, theirs: float, ours: float, *, rel: float, least: float = 0, more: float = 0
) -> None:
    """Raise TimesDifferError unless theirs is ours within rel * ours, or within least.

    Theirs may exceed that by more, where it is known to take time that ours does not.
    """
    off, bound = float(theirs) - float(ours), max(rel * float(ours), float(least))
    if not -bound <= off <= bound + more:
        raise TimesDifferError(f"{what}: theirs {theirs}, ours {ours}, bound {bound:.6g}")
