"""An output that --force was replacing when it was killed is not lost."""

import subprocess
import sys
from pathlib import Path

import pytest

from spoolscope.cli.main import main

KILLED = """
import os, signal, sys
from pathlib import Path
from spoolscope.cli.output import claim_output
with claim_output(Path(sys.argv[1]), force=True):
    if sys.argv[2:]:
        Path(sys.argv[1]).write_text("new")
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def clean(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    with pytest.raises(SystemExit) as ended:
        main(["clean", *words])
    assert ended.value.code == 0
    return capsys.readouterr().out


@pytest.mark.parametrize("written", [False, True])
def test_an_output_that_was_being_replaced_is_put_back(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], written: bool
) -> None:
    report = tmp_path / "report.html"
    report.write_text("old")
    words = [sys.executable, "-c", KILLED, str(report), *(["written"] if written else [])]
    assert subprocess.run(words, check=False).returncode == -9
    assert report.exists() == written
    (aside,) = tmp_path.glob(".report.html.replaced-*")
    assert (aside / "report.html").read_text() == "old"
    assert f"Would remove {aside}: the {report} that was to be replaced" in clean(capsys, "-n")
    clean(capsys)
    assert report.read_text() == ("new" if written else "old")
    assert not aside.exists()
    assert clean(capsys) == "Nothing is left of killed commands.\n"


def test_an_output_that_cannot_be_put_back_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report = tmp_path / "report.html"
    report.write_text("old")
    assert subprocess.run([sys.executable, "-c", KILLED, str(report)], check=False).returncode == -9
    (aside,) = tmp_path.glob(".report.html.replaced-*")
    (aside / "report.html").unlink()
    (aside / "more").touch()
    with pytest.raises(SystemExit) as ended:
        main(["clean"])
    assert ended.value.code == 1
    assert f"cannot put {aside}/report.html back as {report}: No such" in capsys.readouterr().err
    assert (aside / "more").exists()
