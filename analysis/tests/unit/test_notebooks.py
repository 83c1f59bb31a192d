"""The notebooks without root run on the shipped sample; all ask for what was asked of them."""

import ast
import runpy
import shutil
from pathlib import Path

import pytest

NOTEBOOKS = Path(__file__).resolve().parents[3] / "notebooks"
SAMPLE = NOTEBOOKS.parent / "traces/samples/postfix-dovecot"


def test_the_first_look(capsys: pytest.CaptureFixture[str]) -> None:
    variables = runpy.run_path(str(NOTEBOOKS / "01_first_look.py"))
    printed = capsys.readouterr().out
    assert "complete: True" in printed
    assert "journal_commit" in printed
    assert len(variables["figure"].data) > 0


class AskedError(Exception):
    """Has the words of the replay that a notebook asks for, in place of the replay."""


@pytest.mark.parametrize("name", ["02_kjournald", "03_choosing_a_filesystem"])
@pytest.mark.parametrize(("rounds", "expected"), [("4", "4"), (None, "1")])
def test_a_replay_has_the_rounds_of_the_environment(
    name: str, rounds: str | None, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def call(verb: str, *words: object) -> dict[str, list[str]]:
        if verb == "replay":
            raise AskedError(list(map(str, words)))
        if verb == "lab":
            shutil.copytree(SAMPLE, Path(str(words[-1])) / "checkpoint-ordered.trace")
        return {"insights": []}

    monkeypatch.setattr("spoolscope.cli.called.call", call)
    monkeypatch.setenv("SPOOLSCOPE_WORK", str(tmp_path))
    monkeypatch.delenv("SPOOLSCOPE_SCALE", raising=False)
    monkeypatch.delenv("SPOOLSCOPE_ROUNDS", raising=False)
    if rounds is not None:
        monkeypatch.setenv("SPOOLSCOPE_ROUNDS", rounds)
    with pytest.raises(AskedError) as asked:
        runpy.run_path(str(NOTEBOOKS / f"{name}.py"))
    (words,) = asked.value.args
    assert words[words.index("--rounds") + 1] == expected


@pytest.mark.parametrize("notebook", sorted(NOTEBOOKS.glob("*.py")), ids=lambda path: path.stem)
def test_no_page_shows_the_whole_result_of_a_verb(notebook: Path) -> None:
    """Check that no cell ends with a call whose value a notebook would print."""
    for cell in notebook.read_text().split("# %%"):
        last = ast.parse(cell.removeprefix(" [markdown]")).body[-1:]
        shown = [one for one in last if isinstance(one, ast.Expr)]
        assert not any(ast.unparse(one).startswith("call(") for one in shown)
