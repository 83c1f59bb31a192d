"""Measures of fleets with a known truth, and how often it is found, or something else."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from spoolscope.analysis.fleet import change, outliers
from spoolscope.analysis.fleet.measures import MEASURES, Fleet, Spool

SLOW_HOST = 7


def simulated(
    seed: int, n: int = 40, days: int = 28, *, changed: int | None = None, heavy: bool = False
) -> Fleet:
    """Return hosts without a difference but noise of hosts, days and host-days.

    Args:
        seed: Seed of the noise.
        n: Number of hosts.
        days: Number of days.
        changed: Day from which every second host has a new kernel.
        heavy: Let hosts differ by Student's t with four degrees of freedom, not normally.
    """
    random = np.random.default_rng(seed)
    hosts = random.standard_t(4, (len(MEASURES), n)) / np.sqrt(2)
    if not heavy:
        hosts = random.normal(0, 1, (len(MEASURES), n))
    values = {
        name: 1e6
        * np.exp(
            0.15 * own[:, None] + random.normal(0, 0.05, days) + random.normal(0, 0.1, (n, days))
        )
        for name, own in zip(MEASURES, hosts, strict=True)
    }
    kernels = np.full((n, days), "old", object)
    if changed is not None:
        kernels[::2, changed:] = "new"
    calls = np.exp(random.normal(17, 0.4, (n, 1))) * np.ones((n, days))
    spools = [Spool(f"h{row}", 1, "ext4") for row in range(n)]
    dates = [f"2026-11-{day + 1:02d}" for day in range(days)]
    options = np.full((n, days), "rw", object)
    seen, over = np.ones((n, days), bool), np.ones(days, bool)
    return Fleet(spools, dates, values, calls, kernels, options, seen, seen, over, {})


def slower(fleet: Fleet, factor: np.ndarray, measure: str = "sync") -> Fleet:
    """Return a fleet with one measure changed by a factor of hosts, days or both."""
    return replace(fleet, values={**fleet.values, measure: fleet.values[measure] * factor})


def named(found: outliers.Tested) -> set[tuple[int, str]]:
    """Return the spools that are named, with the measure."""
    return {(test.row, test.measure) for test in found.named}


def shares(seeds: int) -> Iterator[tuple[str, str, str]]:
    """Yield (fleet, question, share of the seeds in which the answer is yes)."""

    def of(answers: list[bool]) -> str:
        return f"{100 * sum(answers) / len(answers):.1f} %"

    for n in (20, 40, 300):
        found = [named(outliers.tested(simulated(seed, n))) for seed in range(seeds)]
        yield f"{n} alike", "any host is named: a false alarm", of([bool(one) for one in found])
    found = [named(outliers.tested(simulated(seed, heavy=True))) for seed in range(seeds)]
    yield "40, some far off by nature (t, 4)", "any host is named", of([bool(o) for o in found])
    for factor in (1.5, 2.0, 2.6, 3.5):
        one = np.ones((40, 1))
        one[SLOW_HOST] = factor
        found = [named(outliers.tested(slower(simulated(s), one))) for s in range(seeds)]
        hits = of([(SLOW_HOST, "sync") in each for each in found])
        yield f"40, one {factor:g} times slower", "it is named", hits
    for growth in (1.5, 2.5):
        rising = np.ones((40, 28))
        rising[SLOW_HOST] = np.linspace(1, growth, 28)
        found = [named(outliers.tested(slower(simulated(s), rising, "disk"))) for s in range(seeds)]
        hits = of([(SLOW_HOST, outliers.TREND) in each for each in found])
        yield f"40, one disk grows to {growth:g} times", "its trend is named", hits
    for n in (12, 40):
        yield from _changes(n, seeds)


def _changes(n: int, seeds: int) -> Iterator[tuple[str, str, str]]:
    none, slow = [], []
    for seed in range(seeds):
        fleet = simulated(seed, n, changed=14)
        none.append(change.effects(fleet, change.split(fleet, "kernel"))[0])
        worse = slower(fleet, np.where(fleet.kernels == "new", 1.15, 1.0))
        slow.append(change.effects(worse, change.split(worse, "kernel"))[0])

    def share(answers: list[bool]) -> str:
        return f"{100 * sum(answers) / len(answers):.1f} %"

    false = [one.word in ("slower", "faster") for one in none]
    yield f"{n}, new kernel on half, no effect", "a verdict: false", share(false)
    holds = [one.estimate.low <= 1.15 <= one.estimate.high for one in slow]  # type: ignore[operator]
    yield f"{n}, new kernel on half, 15 % slower", "its interval holds 15 %", share(holds)
    verdicts = [one.word == "slower" for one in slow]
    yield f"{n}, new kernel on half, 15 % slower", "the verdict is slower", share(verdicts)
