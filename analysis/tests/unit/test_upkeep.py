"""The recorder of roll-ups removes what is too old or too much, and merges small files."""

import os
import time
from pathlib import Path

import pytest
from click.testing import CliRunner
from rollup_scenes import MS, Calls, Minute

from spoolscope.cli import upkeep as module
from spoolscope.cli.main import group
from spoolscope.cli.upkeep import Upkeep
from spoolscope.tracers.rolling import own_host
from spoolscope.traces.errors import SpoolscopeError
from spoolscope.traces.rollups.files import Rollups

DAY_S = 86_400
NOW_S = int(time.time()) // DAY_S * DAY_S


@pytest.fixture
def no_merge(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Upkeep, "_merge", lambda _: None)


def written(root: Path, *days_ago: int, host: str | None = None) -> None:
    for ago in days_ago:
        minute = Minute((Calls(5, MS),), columns={"recorder_id": f"r{ago}"})
        minute.write(root, NOW_S - ago * DAY_S, 0, host or own_host())


def days(root: Path) -> int:
    return len(Rollups(root).flushes)


@pytest.mark.usefixtures("no_merge")
def test_own_days_that_are_too_old_go_once_an_hour(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    written(tmp_path, 50, 3, 0)
    written(tmp_path, 50, host="another")
    upkeep = Upkeep(tmp_path, 30, None)
    upkeep()
    assert days(tmp_path) == 3
    assert "Removed 4 files" in capsys.readouterr().err
    written(tmp_path, 40)
    upkeep()
    assert days(tmp_path) == 4
    later = time.monotonic() + 3601
    monkeypatch.setattr(module.time, "monotonic", lambda: later)
    upkeep()
    assert days(tmp_path) == 3


@pytest.mark.usefixtures("no_merge")
def test_what_cannot_be_removed_does_not_end_the_recorder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied", "place")

    monkeypatch.setattr(module, "retain", fails)
    Upkeep(tmp_path, 30, None)()
    assert "warning: old roll-ups are not removed: [Errno 13]" in capsys.readouterr().err
    Upkeep(tmp_path, None, None)()
    assert capsys.readouterr().err == ""


def test_small_files_of_the_host_are_merged_by_another_process(tmp_path: Path) -> None:
    def minutes(*recorders: str, host: str = own_host()) -> None:
        for recorder_id in recorders:
            minute = Minute((Calls(5, MS),), columns={"recorder_id": recorder_id})
            minute.write(tmp_path, NOW_S, 0, host)

    minutes("a", "b", "c")
    minutes("a", "b", host="another")
    hour_ago = time.time() - 3600
    for flush in Rollups(tmp_path).flushes:
        os.utime(tmp_path / flush.path("minutes"), (hour_ago, hour_ago))
    minutes("new")
    upkeep = Upkeep(tmp_path, None, None)
    upkeep()
    upkeep()  # the hour is not over
    assert upkeep.merging is not None
    assert upkeep.complaints is not None
    assert (upkeep.merging.wait(timeout=60), upkeep.complaints.read()) == (0, "")
    upkeep.end()
    flushes = Rollups(tmp_path, hosts=[own_host()]).flushes
    assert sorted(flush.merged for flush in flushes) == [False, True]
    assert days(tmp_path) == 4


def test_a_merge_with_much_to_say_ends_and_is_shown_in_short(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (program := tmp_path / "merge").write_text("#!/bin/sh\nseq 20000 >&2\n")
    program.chmod(0o755)
    monkeypatch.setattr(module.sys, "executable", str(program))
    upkeep = Upkeep(tmp_path, None, None)
    upkeep()
    assert upkeep.merging is not None
    assert upkeep.merging.wait(timeout=60) == 0
    later = time.monotonic() + 3601
    monkeypatch.setattr(module.time, "monotonic", lambda: later)
    upkeep()
    upkeep.end()
    said = capsys.readouterr().err
    assert said.endswith("small files are not all merged: 1 2 3 (and 19,997 more lines)\n")


def test_a_merge_that_cannot_start_does_not_end_the_recorder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    upkeep = Upkeep(tmp_path, None, None)
    upkeep()
    upkeep.end()
    assert "warning: small files are not merged: [Errno 2]" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words", [["--retain", "90d"], ["--quota", "2G"], ["--by-hour", "9d"], ["--take-over"]]
)
def test_these_options_are_for_roll_ups(tmp_path: Path, words: list[str]) -> None:
    words = ["record", "--spool", str(tmp_path), "-o", str(tmp_path / "out"), *words]
    done = CliRunner().invoke(group, words, standalone_mode=False)
    assert isinstance(done.exception, SpoolscopeError)
    assert done.exception.remedy == "add --rollup"
