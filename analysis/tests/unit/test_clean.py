"""The old output of a killed command, and minutes that it recorded, are not lost."""

import json
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
    does = "Would remove" if written else "Would put back"
    assert f"{does} {aside}: the {report} that was to be replaced" in clean(capsys, "-n")
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


RECORDER = """
import os, signal, sys
from pathlib import Path
from spoolscope.traces import unfinished
place, output = Path(sys.argv[2]), Path(sys.argv[3])
place.mkdir(parents=True)
unfinished.begin(place, sys.argv[1], output)
(place / "about.json").touch()
(place / "minute-000000001.json").touch()
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize(
    ("kind", "work", "output"),
    [("minutes", "ru/.minutes-r", "ru"), ("series", "ru/windows-T/.capture", "ru/windows-T")],
)
def test_minutes_that_the_next_recorder_adds_are_left_to_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], kind: str, work: str, output: str
) -> None:
    rollups, place = tmp_path / "ru", tmp_path / work
    words = [sys.executable, "-c", RECORDER, kind, str(place), str(tmp_path / output)]
    assert subprocess.run(words, check=False).returncode == -9
    what = f"{place}: recorded minutes that are not in the roll-ups {rollups} yet"
    assert f"Would leave {what}" in clean(capsys, "-n")
    assert f"Leaving {what}" in clean(capsys)
    assert json.loads(clean(capsys, "--json"))["kept"] == [str(place)]
    assert (place / "minute-000000001.json").exists()
    with pytest.raises(SystemExit):
        main(["candidates"])
    warning = capsys.readouterr().err
    assert f"'spoolscope record --rollup -o {rollups}' adds them" in warning
    assert "spoolscope clean" not in warning
    (place / "about.json").unlink()  # they were added
    (place / "minute-000000001.json").unlink()
    assert f"Removing {place}: " in clean(capsys)
    assert not place.exists()
