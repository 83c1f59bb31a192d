"""Every notebook runs from top to bottom on the shipped sample."""

import runpy
from pathlib import Path

import pytest

NOTEBOOKS = sorted((Path(__file__).resolve().parents[3] / "notebooks").glob("*.py"))


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_it_runs(notebook: Path, capsys: pytest.CaptureFixture[str]) -> None:
    variables = runpy.run_path(str(notebook))
    printed = capsys.readouterr().out
    assert "complete: True" in printed
    assert "journal_commit" in printed
    assert len(variables["figure"].data) > 0


def test_there_are_notebooks() -> None:
    assert NOTEBOOKS
