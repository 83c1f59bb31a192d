"""A pytest plugin: tests of which ``least`` of ``n`` runs must hold, as decided beforehand.

``@pytest.mark.trials(n, least=k)``: the test runs until k runs have held, or until so many have
missed that k cannot hold any more: with the other runs the outcome would be the same. A run misses
if an assertion fails (``misses`` names a narrower class); any other error fails the test at once.
Each run has fresh fixtures. Tests marked ``times`` are such tests, of which 2 of 3 must hold
if they state nothing else.

A table of all runs ends the output, whatever the outcome; ``--durations-to`` keeps it.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from _pytest.runner import runtestprotocol

N, LEAST = 3, 2
TRIALS = "trials"
HELD = "held"
_ERROR = pytest.StashKey[BaseException | None]()


@dataclass(frozen=True)
class Rule:
    """``least`` of ``n`` runs must hold; one misses by an error of the class ``misses``."""

    n: int
    least: int
    misses: type[BaseException] = AssertionError

    def decided(self, results: list[str]) -> bool:
        """Return whether further runs could not change the outcome."""
        held = results.count(HELD)
        return held >= self.least or len(results) - held > self.n - self.least

    def holds(self, results: list[str]) -> bool:
        """Return whether enough runs held."""
        return results.count(HELD) >= self.least


def rule_of(item: pytest.Item) -> Rule | None:
    """Return the rule of a test; None if it runs once."""
    if (mark := item.get_closest_marker(TRIALS)) is not None:
        return Rule(*mark.args, **mark.kwargs)
    mark = item.get_closest_marker("times")
    return None if mark is None else Rule(N, LEAST, **mark.kwargs)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
    """Run a test as often as its rule asks, and report it once."""
    rule = rule_of(item)
    if rule is None:
        return None
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    for report in _decided(item, nextitem, rule):
        item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[Any]:
    """Keep the error of a phase, whose class decides whether a run has missed."""
    if call.when == "call":
        item.stash[_ERROR] = call.excinfo.value if call.excinfo else None
    return (yield)


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Print the runs of each such test."""
    rows = [
        (report.nodeid, dict(report.user_properties)[TRIALS])
        for reports in terminalreporter.stats.values()
        for report in reports
        if TRIALS in dict(getattr(report, "user_properties", ()))
    ]
    if not rows:
        return
    terminalreporter.section("runs of tests that need so many of n")
    for name, found in sorted(rows):
        held = found["results"].count(HELD)
        terminalreporter.line(f"{held} held, {found['least']} of {found['n']} needed: {name}")
        for result in found["results"]:
            if result != HELD:
                terminalreporter.line(f"    {result}")


def _decided(
    item: pytest.Item, nextitem: pytest.Item | None, rule: Rule
) -> list[pytest.TestReport]:
    """Return the reports of the run that stands for all, with the results of all."""
    runs: dict[str, list[pytest.TestReport]] = {}
    results: list[str] = []
    properties: dict[str, Any] = {}
    seconds = 0.0
    while not rule.decided(results):
        reports = runtestprotocol(item, nextitem=nextitem, log=False)
        seconds += (took_s := sum(report.duration for report in reports))
        for report in reports:
            for key, value in report.user_properties:
                sums = isinstance(value, float)
                properties[key] = properties.get(key, 0.0) + value if sums else value
        result = _result(item, reports, rule, took_s)
        if result is None:
            return reports
        results.append(result)
        runs["held" if result == HELD else "missed"] = reports
    chosen = runs["held" if rule.holds(results) else "missed"]
    properties[TRIALS] = {"n": rule.n, "least": rule.least, "results": results}
    for report in chosen:
        report.user_properties = []
        if report.when == "call":
            report.user_properties = [*properties.items()]
            report.duration += seconds - sum(report.duration for report in chosen)
    return chosen


def _result(
    item: pytest.Item, reports: list[pytest.TestReport], rule: Rule, seconds: float
) -> str | None:
    """Return whether a run held or how it missed; None if it decides the outcome alone."""
    if all(report.passed for report in reports):
        return HELD
    others = [report for report in reports if report.when != "call" and not report.passed]
    error = item.stash.get(_ERROR, None)
    if others or not isinstance(error, rule.misses):
        return None
    lines = str(error).splitlines() or [type(error).__name__]
    return f"missed after {seconds:.0f} s: {lines[0][:200]}"
