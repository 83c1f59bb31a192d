"""The notebooks without root run from top to bottom on the shipped sample."""

import runpy
from pathlib import Path

import pytest

NOTEBOOKS = Path(__file__).resolve().parents[3] / "notebooks"


def test_the_first_look(capsys: pytest.CaptureFixture[str]) -> None:
    variables = runpy.run_path(str(NOTEBOOKS / "01_first_look.py"))
    printed = capsys.readouterr().out
    assert "complete: True" in printed
    assert "journal_commit" in printed
    assert len(variables["figure"].data) > 0
