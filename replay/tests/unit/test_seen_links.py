"""Traces without a snapshot whose calls show links, the spool itself, or file types late."""

import errno
from os import O_NOFOLLOW
from pathlib import Path

import pytest

from spoolscope.replay.outcomes import VERDICTS

LNK, REG, DIR, FIFO = 0o120777, 0o100644, 0o040755, 0o010600


@pytest.fixture
def replayed(script, target: Path, execute):
    """Return ``replayed()``: replay the script, check that nothing diverges, return the target."""

    def run() -> Path:
        outcomes, verified = execute(script, target)
        assert {VERDICTS[verdict] for verdict in outcomes["verdict"]} == {"same"}
        assert verified["mismatched"] == 0
        return target

    return run


@pytest.mark.parametrize("call", ["access", "chmod", "stat", "lstat", "utimensat", "statfs"])
def test_a_call_on_the_spool_itself_needs_a_directory(script, replayed, call: str) -> None:
    script.call(10, 1, call, "", mode=0 if call == "access" else 0o755)
    script.call(10, 2, "openat", "a", ret=3, flags=0)
    assert (replayed() / "a").is_file()


def test_a_link_has_the_length_that_was_read(script, replayed) -> None:
    script.call(10, 1, "readlink", "l", ret=4, size=256)
    script.call(10, 2, "readlink", "a/b/long", ret=701, size=4096)
    script.call(10, 3, "readlink", "a/b/one", ret=1, size=256)
    script.call(10, 4, "readlink", "a/b/other", ret=1, size=256)
    target = replayed()
    assert (target / "l").lstat().st_size == 4
    assert (target / "a/b/long").lstat().st_size == 701
    assert str((target / "a/b/one").readlink()) != str((target / "a/b/other").readlink())
    assert (target / "a/b").is_dir()


def test_what_was_reached_through_a_link_is_beside_it(script, replayed) -> None:
    """lstat shows a link of 13 bytes, stat the file behind it; later calls go through it, too."""
    script.call(10, 1, "stat", "a", obj_mode=DIR)
    script.call(10, 2, "lstat", "a/b/c/link", obj_mode=LNK, obj_size=13)
    script.call(10, 3, "stat", "a/b/c/link", obj_mode=REG, obj_size=729)
    script.call(10, 4, "readlink", "a/b/c/link", ret=13, size=256)
    script.call(10, 5, "openat", "a/b/c/link", ret=3, flags=0, ino=8, obj_mode=REG, obj_size=729)
    script.call(10, 6, "lstat", "a/b/folder", obj_mode=LNK, obj_size=6)
    script.call(10, 7, "openat", "a/b/folder/new", ret=4, flags=0o102, mode=0o600)
    target = replayed()
    assert (target / "a/b/c/link").is_symlink()
    assert (target / "a/b/c/link").stat().st_size == 729
    assert (target / "a/b/c/link").lstat().st_size == 13
    assert (target / "a/b/folder/new").is_file()


def test_a_link_that_a_call_made_was_not_there_before(script, replayed) -> None:
    script.call(10, 1, "symlink", "to", path2="made", kind="text")
    script.calls[-1].update(path_id=script.path("made"), path2_id=script.path("to", "text"))
    script.call(10, 2, "readlink", "made", ret=2, size=256)
    script.call(10, 3, "lstat", "old", obj_mode=LNK, obj_size=5)
    script.call(10, 4, "rename", "old", path2="moved")
    script.call(10, 5, "readlink", "moved", ret=5, size=256)
    script.call(10, 6, "unlink", "made")
    target = replayed()
    assert sorted(path.name for path in target.iterdir()) == ["moved"]


def test_a_type_is_believed_whenever_it_is_told(script, replayed) -> None:
    script.call(10, 1, "access", "pipe")
    script.call(10, 2, "lstat", "pipe", obj_mode=FIFO)
    script.call(10, 3, "chmod", "folder", mode=0o700)
    script.call(10, 4, "stat", "folder", obj_mode=0o040700)
    script.call(10, 5, "lchown", "l", arg=0)
    script.call(10, 6, "readlink", "l", ret=3, size=256)
    target = replayed()
    assert (target / "pipe").is_fifo()
    assert (target / "folder").is_dir()
    assert (target / "l").is_symlink()


def test_parents_that_only_names_below_tell_of(script, replayed) -> None:
    script.call(10, 1, "unlink", "a/b/c/d")
    script.call(10, 2, "lstat", "e/f/g", obj_mode=FIFO)
    script.call(10, 3, "stat", "h/i/j", ret=-2)
    script.call(10, 4, "rename", "k/l/m", path2="n/o/p")
    target = replayed()
    assert all((target / name).is_dir() for name in ("a/b/c", "e/f", "n/o", "k/l"))


def test_a_link_of_an_imported_trace_holds_what_was_read(script, replayed) -> None:
    """Then a file below the target is the one that a call made through the link."""
    script.call(10, 1, "readlink", "cur", ret=3, size=256, path2="v12", kind2="text")
    script.call(10, 2, "openat", "cur/f", ret=3, flags=0o301, mode=0o600)
    script.call(10, 3, "openat", "v12/f", ret=4, flags=0)
    target = replayed()
    assert str((target / "cur").readlink()) == "v12"
    assert [path.name for path in (target / "v12").iterdir()] == ["f"]


def test_what_could_not_be_opened_without_following_is_a_link(script, replayed) -> None:
    script.call(10, 1, "openat", "x", flags=O_NOFOLLOW, errno=errno.ELOOP)
    script.call(10, 2, "openat", "x", ret=3, flags=0)
    assert (replayed() / "x").is_symlink()


def test_errors_show_what_was_there(script, replayed) -> None:
    script.call(10, 1, "readlink", "v", errno=errno.EINVAL, size=256)
    script.call(10, 2, "link", "y", path2="z", errno=errno.EEXIST)
    target = replayed()
    assert {path.name for path in target.iterdir()} == {"v", "y", "z"}


def test_a_file_is_as_long_as_was_read_although_less_was_written(script, replayed) -> None:
    script.call(10, 1, "openat", "a", ret=3, flags=2, ino=5)
    script.call(10, 2, "pread64", "a", fd=3, ino=5, ret=4096, size=4096, offset=8192)
    script.call(10, 3, "pwrite64", "a", fd=3, ino=5, ret=100, size=100, offset=50)
    assert (replayed() / "a").stat().st_size == 12288
