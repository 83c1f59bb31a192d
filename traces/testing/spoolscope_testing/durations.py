"""A pytest plugin: the seconds of each test, on the clock and on the processors, in a file.

``--durations-to FILE`` writes JSON: for each test its outcome, ``wall_s`` and ``cpu_s`` (user and
system time of the test's process and of the children that it waited for), set-up and clean-up
included. What the first test of a session fixture spends for all others counts as its own.
"""

import json
import os
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

CPU_S = "cpu_s"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add ``--durations-to``."""
    parser.addoption("--durations-to", type=Path, help="file for the seconds of each test")


def pytest_configure(config: pytest.Config) -> None:
    """Begin to measure, and in the process that has all reports, to collect."""
    config.pluginmanager.register(_Meter())
    if (path := config.getoption("--durations-to")) and not hasattr(config, "workerinput"):
        config.pluginmanager.register(_Collector(path))


class _Meter:
    """Adds to each report the CPU seconds since the one before it."""

    def __init__(self) -> None:
        self.spent = _cpu_s()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self) -> Any:
        """Add the CPU seconds of one phase."""
        report = yield
        before, self.spent = self.spent, _cpu_s()
        report.user_properties = [*report.user_properties, (CPU_S, self.spent - before)]
        return report


class _Collector:
    """Adds up the phases of each test."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.tests: dict[str, dict[str, Any]] = defaultdict(
            lambda: {"outcome": "passed", "wall_s": 0.0, CPU_S: 0.0, "kept": {}}
        )

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Add one phase."""
        test = self.tests[report.nodeid]
        test["wall_s"] += report.duration
        properties = dict(report.user_properties)
        test[CPU_S] += properties.pop(CPU_S, 0.0)
        test["kept"] |= properties
        if report.outcome != "passed":
            test["outcome"] = report.outcome

    def pytest_sessionfinish(self) -> None:
        """Write the file."""
        rows = [{"test": name} | test for name, test in self.tests.items()]
        for row in rows:
            row["wall_s"], row[CPU_S] = round(row["wall_s"], 2), round(row[CPU_S], 2)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.write_text(json.dumps(sorted(rows, key=lambda row: -row["wall_s"]), indent=1))


def _cpu_s() -> float:
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system
