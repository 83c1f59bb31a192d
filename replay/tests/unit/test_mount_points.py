"""Mount points: one for each command; those of killed commands are used again or removed."""

from pathlib import Path

import pytest

from spoolscope.replay import mount_points
from spoolscope.replay.mount_points import mount_point, remove_unused


@pytest.fixture(autouse=True)
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(mount_points, "RUN", tmp_path / "run")
    return tmp_path / "run"


def test_two_commands_never_share_one(run: Path) -> None:
    with mount_point() as first, mount_point() as second:
        assert [first, second] == [run / "1", run / "2"]
        remove_unused()
        assert first.is_dir()
        assert second.is_dir()
    assert not run.exists()


def test_one_of_a_killed_command_is_taken_again(run: Path) -> None:
    (run / "1").mkdir(parents=True)
    with mount_point() as place:
        assert place == run / "1"
    assert not run.exists()


def test_those_of_killed_commands_are_removed_if_they_are_empty(run: Path) -> None:
    for name in ("1", "2"):
        (run / name).mkdir(parents=True)
    (run / "2" / "mail").touch()
    (run / "file").touch()
    remove_unused()
    assert {path.name for path in run.iterdir()} == {"2", "file"}


def test_those_of_another_user_stay(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (run / "1").mkdir(parents=True)

    def closed(*_words: object) -> int:
        raise PermissionError

    monkeypatch.setattr("os.open", closed)
    remove_unused()
    assert (run / "1").is_dir()


def test_without_any_nothing_is_made(run: Path) -> None:
    remove_unused()
    assert not run.exists()
