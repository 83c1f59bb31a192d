"""Two recorders agree on a border: the old one writes what is before it, the new one the rest."""

import fcntl
import os
import signal
from pathlib import Path

import pytest

from spoolscope.tracers.handover import agree, is_over, starting, window
from spoolscope.traces.errors import SpoolscopeError


@pytest.fixture
def works(tmp_path: Path) -> tuple[Path, Path]:
    new, old = tmp_path / "new", tmp_path / "old"
    new.mkdir()
    old.mkdir()
    return new, old


def written(work: Path, minutes: range, period: int = 60) -> list[int]:
    """Return the minutes that a recorder with these notes writes until it ends."""
    found = []
    for minute in minutes:
        first, end = window(work)
        if first <= minute < end:
            found.append(minute)
        if is_over(work, minute, period):
            break
    return found


@pytest.mark.parametrize("now_s", [0.0, 1.0, 57.9, 58.0, 58.1, 59.9, 60.0])
def test_each_minute_is_written_by_one_of_both(works: tuple[Path, Path], now_s: float) -> None:
    new, old = works
    border = agree(new, old, 600 + now_s, 60)
    assert border in (660, 720)
    assert border - (600 + now_s) >= 2
    first = range(0, 1200, 60)
    assert written(old, first) == list(range(0, border, 60))
    assert written(new, range(600, 1200, 60)) == list(range(border, 1200, 60))


def test_an_old_one_that_sees_the_note_late_leaves_out_what_the_new_one_has(
    works: tuple[Path, Path],
) -> None:
    new, old = works
    agree(new, old, 0.0, 60)
    assert written(old, range(120, 1200, 60)) == []


def test_without_a_note_a_recorder_writes_all(tmp_path: Path) -> None:
    assert written(tmp_path, range(0, 300, 60)) == list(range(0, 300, 60))


def test_a_damaged_note_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "until.json").write_text("x")
    with pytest.raises(SpoolscopeError, match=r"until\.json is damaged"):
        window(tmp_path)


def is_free(directory: Path) -> bool:
    """Return whether a recorder could start there at once."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(descriptor)
    return True


def test_recorders_of_a_directory_start_one_after_the_other(tmp_path: Path) -> None:
    with starting(tmp_path) as started:
        assert not is_free(tmp_path)
        if not (child := os.fork()):  # as the process that converts windows
            signal.pause()
        try:
            started()
            assert is_free(tmp_path)
        finally:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
    with pytest.raises(ZeroDivisionError), starting(tmp_path):
        raise ZeroDivisionError
    assert is_free(tmp_path)
