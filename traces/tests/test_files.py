"""A file is written under a name that cannot be guessed, and read only if it is regular."""

import os
import re
import stat
from pathlib import Path

import pytest

from spoolscope.traces import files
from spoolscope.traces.files import regular, replacing, write_file


def test_a_link_with_the_final_name_is_replaced_not_followed(tmp_path: Path) -> None:
    victim, out = tmp_path / "victim", tmp_path / "out"
    victim.write_text("precious")
    out.symlink_to(victim)
    write_file(out, "new")
    assert (victim.read_text(), out.read_text(), out.is_symlink()) == ("precious", "new", False)


def test_the_draft_cannot_be_guessed_and_is_new(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, drafts = tmp_path / "out", set()
    for _ in range(20):
        with replacing(out):
            drafts |= {file.name for file in tmp_path.iterdir() if file != out}
    assert len(drafts) == 20
    assert all(len(name) >= len(".out.") + 16 for name in drafts)
    monkeypatch.setattr(files.secrets, "token_hex", lambda _: "guessed")
    (tmp_path / ".out.guessed").symlink_to("victim")
    with pytest.raises(FileExistsError):
        write_file(out, "new")
    assert not (tmp_path / "victim").exists()


@pytest.mark.parametrize(("private", "mode"), [(True, 0o600), (False, 0o640)])
def test_modes(private: bool, mode: int, tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        write_file(tmp_path / "out", "new", private=private)
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "out").stat().st_mode) == mode


def interrupted(out: Path) -> None:
    with replacing(out) as file:
        file.write(b"half")
        raise KeyboardInterrupt


def test_a_failure_leaves_what_was_there_and_nothing_else(tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.write_text("old")
    with pytest.raises(KeyboardInterrupt):
        interrupted(out)
    assert [p.name for p in tmp_path.iterdir()] == ["out"]
    assert out.read_text() == "old"


def test_a_long_name_has_a_draft(tmp_path: Path) -> None:
    write_file(tmp_path / ("é" * 127), "new")
    assert len(list(tmp_path.iterdir())) == 1


def test_only_files_are_read(tmp_path: Path) -> None:
    file, pipe, link = tmp_path / "file", tmp_path / "pipe", tmp_path / "link"
    file.write_text("x")
    os.mkfifo(pipe)
    link.symlink_to(pipe)
    assert regular(file) == file
    for other in (pipe, link, tmp_path, Path("/dev/zero")):
        with pytest.raises(OSError, match="no regular file"):
            regular(other)
    with pytest.raises(FileNotFoundError):
        regular(tmp_path / "nothing")


# Modules that write files of the kernel, files on filesystems that only the lab sees, and files in
# a private temporary directory.
NOT_FILES = ("lab/", "tracers/blktrace/ftrace.py", "replay/nfs.py", "export/speedscope.py")


def test_only_one_module_makes_files() -> None:
    """Other modules use replacing(), or open exclusively."""
    root = Path(__file__).parents[2]
    making = re.compile(r'\.write_(text|bytes)\(|(?<!fd)open\([^)]*"[wa]b?\+?"')
    found = [
        f"{file.name}: {line.strip()}"
        for part in ("traces", "tracers", "replay", "analysis")
        for file in (root / part / "python/spoolscope").rglob("*.py")
        if not any(name in str(file.relative_to(root)) for name in NOT_FILES)
        for line in file.read_text().splitlines()
        if making.search(line)
    ]
    assert found == []
