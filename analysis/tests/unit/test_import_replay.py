"""Lines of strace, imported and replayed: calls with partial data are made as recorded."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from spoolscope.cli.main import group
from spoolscope.replay.run import replay
from spoolscope.tracers.strace.importer import import_strace

DIR = "{st_mode=S_IFDIR|0755, st_size=4096, ...}"
REG = "{st_mode=S_IFREG|0644, st_size=729, ...}"
CASES = {
    "the spool itself": ['access("/spool", F_OK) = 0', 'open("/spool/a", O_RDONLY) = 3', ],
    "the spool with a slash": [f'stat("/spool/", {DIR}) = 0', 'chdir("/spool/.") = 0',
                               'open("a", O_RDONLY) = 3'],
    "a link and what it leads to": [
        f'stat("/spool/a", {DIR}) = 0',
        'lstat("/spool/a/b/c/link", {st_mode=S_IFLNK|0777, st_size=13, ...}) = 0',
        f'stat("/spool/a/b/c/link", {REG}) = 0',
        'readlink("/spool/a/b/c/link", "target-file.x", 256) = 13',
        'open("/spool/a/b/c/link", O_RDONLY) = 3',
        'read(3, ""..., 4096) = 729',
    ],
    "a link that is only read": ['open("/spool/zz", O_RDONLY) = 3',
                                 'readlink("/spool/l", "edit", 256) = 4'],
    "a link at the root, with and without a slash": [
        'lstat("/spool/l", {st_mode=S_IFLNK|0777, st_size=4, ...}) = 0',
        f'lstat("/spool/l/", {DIR}) = 0',
        'openat(AT_FDCWD, "/spool/l/", O_RDONLY|O_DIRECTORY) = 3',
        'open("/spool/l/x", O_RDWR|O_CREAT, 0600) = 4',
    ],
    "a link that is broken": [
        'lstat("/spool/l", {st_mode=S_IFLNK|0777, st_size=4, ...}) = 0',
        'stat("/spool/l", 0x7ff) = -1 ENOENT (No such file or directory)',
        'unlink("/spool/l") = 0',
    ],
    "a directory that is used as one only later": [
        'access("/spool/d", W_OK) = 0', 'chmod("/spool/d", 0755) = 0',
        'mkdir("/spool/d/e", 0700) = 0', 'rename("/spool/d", "/spool/f") = 0',
        f'stat("/spool/f/", {DIR}) = 0',
    ],
    "a socket that is met before its type is told": [
        'access("/spool/d/s", W_OK) = 0',
        'lstat("/spool/d/s", {st_mode=S_IFSOCK|0666, st_size=0, ...}) = 0',
    ],
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_an_import_is_replayed_as_it_was(case: str, tmp_path: Path) -> None:
    log, trace, target = (tmp_path / name for name in ("log.70", "trace", "target"))
    log.write_text("".join(f"{line}\n" for line in CASES[case]))
    target.mkdir()
    import_strace([log], Path("/spool"), trace, None, lambda _what, _fraction: None)
    (row,) = replay(trace, [f"dir:{target}"], tmp_path / "out", pace="afap")
    assert row["divergences"]["roots"] == []
    assert row["executed"] == len(CASES[case])
    assert (row["divergent"], row["skipped"]) == (0, 0)
    assert row["final_state"]["mismatched"] == 0


@pytest.mark.parametrize(
    ("head", "said", "warned"),
    [
        ("", "with no times, in the order of lines", "without the pauses"),
        ("16:02:01 ", "with times of day, in the order of lines", "whole seconds"),
        ("16:02:01.000001 ", "with times of day", "tell no day"),
        ("     0.000001 ", "with relative times", "tell no beginning"),
    ],
)
def test_what_the_lines_left_open_is_said(
    head: str, said: str, warned: str, tmp_path: Path
) -> None:
    log, trace = tmp_path / "log", tmp_path / "trace"
    log.write_text(f'{head}mkdir("/spool/d", 0700) = 0\n{head}rmdir("d") = 0\n')
    words = ("strace", log, "--pid", 70, "--cwd", "/spool", "--root", "/spool", "-o", trace)
    made = CliRunner().invoke(group, ["import", *map(str, words), "--keep-names"])
    assert made.exit_code == 0, made.output
    assert warned in made.stderr
    info = CliRunner().invoke(group, ["info", str(trace)])
    assert f"2 lines of strace {said}, 2 without duration" in " ".join(info.stdout.split())
