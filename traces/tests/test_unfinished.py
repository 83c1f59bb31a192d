"""Directories that a killed command left are found, and no others."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from spoolscope.traces import unfinished
from spoolscope.traces.errors import SpoolscopeError
from spoolscope.traces.output import discard, publish, work_directory

WORK = """
import sys, time
from pathlib import Path
from spoolscope.traces.output import work_directory
print(work_directory(Path(sys.argv[1]), "recording"), flush=True)
time.sleep(60)
"""


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state" / "spoolscope" / "unfinished"


def working(output: Path) -> tuple[subprocess.Popen[str], Path]:
    """Return a command that works on an output, and its work directory."""
    words = [sys.executable, "-c", WORK, str(output)]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    return process, Path(process.stdout.readline().strip())


def killed(process: subprocess.Popen[str]) -> None:
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert process.stdout is not None
    process.stdout.close()


def test_what_a_killed_command_worked_in_is_left(tmp_path: Path) -> None:
    process, work = working(tmp_path / "a.trace")
    assert work.is_dir()
    assert unfinished.left() == []  # it still runs
    killed(process)
    (one,) = unfinished.left()
    assert (one.place, one.kind, one.output) == (work, "recording", tmp_path / "a.trace")
    discard(work)
    assert unfinished.left() == []


def test_what_ends_in_order_leaves_no_note(tmp_path: Path, state: Path) -> None:
    first = work_directory(tmp_path / "a.trace")
    assert len(list(state.iterdir())) == 1
    publish(first, tmp_path / "a.trace")
    discard(work_directory(tmp_path / "b.trace"))
    assert not state.exists()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.trace", "state"]


def test_another_directory_of_that_name_is_not_ours(tmp_path: Path) -> None:
    process, work = working(tmp_path / "a.trace")
    killed(process)
    work.rename(tmp_path / "aside")
    work.mkdir()
    assert unfinished.left() == []
    work.rmdir()
    work.symlink_to(tmp_path / "aside")
    assert unfinished.left() == []


@pytest.mark.parametrize("mode", [0o777, 0o770])
def test_notes_that_others_may_have_written_are_not_read(
    tmp_path: Path, state: Path, mode: int
) -> None:
    process, _ = working(tmp_path / "a.trace")
    killed(process)
    state.chmod(mode)
    assert unfinished.left() == []
    state.chmod(0o700)
    (note,) = state.iterdir()
    kept = note.read_text()
    note.chmod(0o666)
    assert unfinished.left() == []
    for damaged in ("", "[]", '{"place": 1}', json.dumps(json.loads(kept) | {"inode": "x"})):
        state.mkdir(exist_ok=True, parents=True)
        note.write_text(damaged)
        note.chmod(0o600)
        assert unfinished.left() == []


@pytest.mark.parametrize("change", ["owner", "mode"])
def test_a_state_directory_below_one_of_another_user_is_not_used(
    tmp_path: Path, change: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This may happen with sudo -E; the owner could put a link there."""
    if os.geteuid() != 0:
        pytest.skip("only root can give a directory away")
    home = tmp_path / "home"
    (home / "state").mkdir(parents=True)
    monkeypatch.setenv("XDG_STATE_HOME", str(home / "state"))
    assert unfinished._directory() == home / "state/spoolscope/unfinished"
    if change == "owner":
        os.chown(home, 1000, 1000)
    else:
        home.chmod(0o777)
    assert unfinished._directory() == Path("/var/lib/spoolscope/unfinished")


def test_two_commands_do_not_write_one_output(tmp_path: Path) -> None:
    process, work = working(tmp_path / "a.trace")
    with pytest.raises(SpoolscopeError, match=r"another command is writing .*a\.trace") as caught:
        work_directory(tmp_path / "a.trace")
    assert caught.value.exit_code == 2
    for name in ("b.trace", "a.trace.b", "a"):  # their work directories have similar names
        discard(work_directory(tmp_path / name))
    killed(process)
    discard(work_directory(tmp_path / "a.trace"))
    discard(work)


def test_a_state_directory_that_cannot_be_written_does_no_harm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    discard(work_directory(tmp_path / "a.trace"))
    assert unfinished.left() == []


def test_a_command_names_itself_as_a_shell_takes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert unfinished.command_line() is None  # pytest is not spoolscope
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["/usr/bin/spoolscope", "replay", "a b.trace"])
    root = "sudo " if os.geteuid() == 0 else ""
    assert unfinished.command_line() == f"cd {tmp_path} && {root}spoolscope replay 'a b.trace'"


def test_a_lock_ends_with_its_process(tmp_path: Path) -> None:
    process, work = working(tmp_path / "a.trace")
    assert unfinished.in_use(work)
    killed(process)
    deadline = time.monotonic() + 60
    while unfinished.in_use(work) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not unfinished.in_use(work)
