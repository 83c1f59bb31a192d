"""Pages of injected faults, each from another machine, as one."""

import subprocess
import sys
from pathlib import Path

import pytest

from spoolscope.analysis.explain import explain
from spoolscope.lab.accuracy import Score
from spoolscope.lab.suite import Outcome
from spoolscope.lab.table import markdown

JOIN = Path(__file__).parents[2] / "benchmarks/ground_truth_pages.py"


@pytest.fixture
def page(builder, tmp_path):
    builder.call("fsync", 0)
    found = explain(builder.write())

    def make(fstype, *right, seconds=5.0):
        """Write a page with a row for each fault, by how many of its two calls are named right."""
        outcomes = [
            Outcome(name, fstype, Score(100, 2, 0, n, {}, n, None, 10, 10, 10, 1.0, 0), found)
            for name, n in right
        ]
        words = [*(name for name, _ in right), "--on", fstype, "-o", f"{fstype}.md"]
        path = tmp_path / f"{fstype}.md"
        path.write_text(markdown(outcomes, seconds, words))
        return path

    return make


def joined(*pages: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, JOIN, *pages], capture_output=True, text=True)


def results(text: str) -> list[str]:
    rows = [line for line in text.splitlines() if line.count("|") == 13]
    return rows[2:]


def remarks(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith("* **")]


def test_rows_commands_and_remarks_of_all_pages_are_in_one(page):
    first = page("jfs", ("slow-read", 2), ("held-lock", 2))
    second = page("f2fs", ("slow-flush", 2), ("slow-read", 1))
    done = joined(first, second)
    assert done.returncode == 0, done.stderr
    rows = results(done.stdout)
    assert sorted(rows) == sorted(results(first.read_text()) + results(second.read_text()))
    assert [row.split()[1] for row in rows] == ["held-lock", "slow-flush", "slow-read", "slow-read"]
    lines = done.stdout.splitlines()
    assert sum(line.startswith("| slow-read | ") for line in lines) == 2  # a row and what it is
    assert "3 of 4 rows reach the goals; those that do not are marked with a cross." in lines
    assert remarks(done.stdout) == ["* **slow-read** on f2fs: not understood."]
    commands = [line.split("`")[1] for line in lines if line.endswith("` |")]
    assert commands == [
        "spoolscope lab faults slow-read held-lock --on jfs -o jfs.md",
        "spoolscope lab faults slow-flush slow-read --on f2fs -o f2fs.md",
    ]


def test_a_later_page_replaces_rows_of_the_joined_page(page, tmp_path):
    before = joined(page("jfs", ("slow-read", 1), ("held-lock", 2)))
    (tmp_path / "before.md").write_text(before.stdout)
    assert joined(tmp_path / "before.md").stdout == before.stdout
    assert remarks(before.stdout) == ["* **slow-read** on jfs: not understood."]
    after = joined(tmp_path / "before.md", page("jfs", ("slow-read", 2))).stdout
    assert "2 of 2 rows reach the goals" in after
    assert [row.split("|")[1].strip() for row in results(after)] == ["held-lock", "slow-read"]
    assert remarks(after) == []


def test_pages_of_different_loads_are_not_joined(page):
    done = joined(page("jfs", ("slow-read", 2)), page("f2fs", ("slow-read", 2), seconds=8.0))
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("pages differ in the length of the load")


def test_another_document_is_refused(tmp_path):
    (tmp_path / "other.md").write_text("# Other\n")
    done = joined(tmp_path / "other.md")
    assert (done.returncode, done.stderr) == (1, "this is no page of 'spoolscope lab faults'\n")
