"""Tests that need k of n runs are decided by that rule alone, and their runs are printed."""

import json
from pathlib import Path

import pytest
import spoolscope_testing

pytest_plugins = ["pytester"]
PLUGINS = ("-p", "spoolscope_testing.trials", "-p", "spoolscope_testing.durations")
SETTINGS = f"""
[pytest]
markers = trials
    times
pythonpath = {Path(spoolscope_testing.__file__).parents[1]}
"""
TESTS = """
import pytest
RUNS = {{}}

@pytest.fixture
def run(tmp_path):
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "used").touch()
    RUNS["n"] = RUNS.get("n", 0) + 1
    return RUNS["n"]

@pytest.mark.trials(3, least=2)
def test_it(run):
    outcome = {outcomes!r}[run - 1]
    if outcome == "broken":
        pytest.fail("broken")
    assert outcome == "held", outcome
"""


@pytest.mark.parametrize(
    ("outcomes", "passes", "results"),
    [
        (["held", "held"], True, ["held", "held"]),
        (["late", "held", "held"], True, ["late", "held", "held"]),
        (["held", "late", "held"], True, ["held", "late", "held"]),
        (["held", "late", "later"], False, ["held", "late", "later"]),
        (["late", "later"], False, ["late", "later"]),
        (["held", "broken"], False, None),
    ],
)
def test_k_of_n_runs_decide(pytester, outcomes, passes, results):
    pytester.makepyfile(TESTS.format(outcomes=outcomes))
    pytester.makeini(SETTINGS)
    done = pytester.runpytest_subprocess(*PLUGINS, "--durations-to", "seconds.json")
    done.assert_outcomes(passed=int(passes), failed=int(not passes))
    (row,) = json.loads((pytester.path / "seconds.json").read_text())
    if results is None:
        assert "trials" not in row["kept"]
        return
    told = [
        result.rpartition(": ")[2].partition("\n")[0] for result in row["kept"]["trials"]["results"]
    ]
    assert [text.removeprefix("AssertionError: ") for text in told] == results
    held = results.count("held")
    done.stdout.fnmatch_lines([f"{held} held, 2 of 3 needed: *test_it"])


def test_seconds_of_all_runs_are_those_of_the_test(pytester):
    pytester.makepyfile(
        "import pytest, time\n"
        "@pytest.mark.times\n"
        "def test_it():\n"
        "    time.sleep(0.3)\n"
        "def test_other():\n"
        "    end = time.process_time() + 0.3\n"
        "    while time.process_time() < end:\n"
        "        pass\n"
    )
    pytester.makeini(SETTINGS)
    pytester.runpytest_subprocess(*PLUGINS, "--durations-to", "seconds.json")
    rows = {row["test"].partition("::")[2]: row for row in json.loads(
        (pytester.path / "seconds.json").read_text())}  # fmt: skip
    assert rows["test_it"]["wall_s"] >= 0.6
    assert rows["test_it"]["cpu_s"] < 0.2
    assert rows["test_other"]["cpu_s"] >= 0.28  # the kernel counts it in ticks of 10 ms
