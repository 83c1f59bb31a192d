"""Real names: in no byte of a trace or report, but all shown to the owner of the book."""

import json
import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import duckdb
import pytest

from spoolscope.traces.schema import TABLES

pytestmark = [pytest.mark.root, pytest.mark.steady]

# Names of mailboxes and directories, and of programs, threads and a control group.
SECRET = ("wilhelmina", "zeppelin.example", "bartholomew", "oddtool", "sharedbox", "horatio")
SCRIPT = """
set -e
cd {mount}
box=zeppelin.example/wilhelmina/Maildir
work() {{ "$1" if=/dev/zero of="$2" bs=4k count=5 oflag=sync 2>/dev/null; }}
work {bin}/wilhelmina $box/tmp/1700000000.M1P2.h
mv $box/tmp/1700000000.M1P2.h "$box/cur/1700000000.M1P2.h,S=5:2,S"
work {bin}/fetch-wilhelmina sharedbox/a
work {bin}/nightly-archive sharedbox/b
work {bin}/imap imap/c
work sharedbox/oddtool sharedbox/d
{python} {bin}/renamed.py bartholomew-7 sharedbox/e
sh -c 'echo $$ > {group}/cgroup.procs;
exec {bin}/nightly-archive if=/dev/zero of=sharedbox/f bs=4k count=1 oflag=sync 2>/dev/null'
"""
RENAMED = """
import ctypes, os, sys
ctypes.CDLL(None).prctl(15, sys.argv[1].encode(), 0, 0, 0)
fd = os.open(sys.argv[2], os.O_CREAT | os.O_WRONLY, 0o600)
for _ in range(5):
    os.write(fd, b"x" * 4096)
    os.fsync(fd)
"""


def spoolscope(home: Path, *words: object, code: tuple[int, ...] = (0, 3)) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "spoolscope.cli.main", *map(str, words)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "XDG_CONFIG_HOME": str(home)},
    )
    assert done.returncode in code, done.stderr
    return done.stdout if done.returncode in (0, 3) else done.stderr


def told(trace: Path) -> str:
    """Return the content of a trace as one text: read by DuckDB alone, and as bytes."""
    parts = []
    for file in trace.iterdir():
        parts.append(file.read_bytes().decode("latin-1"))
        if file.suffix == ".parquet":
            parts.append(str(duckdb.connect().execute(f"SELECT * FROM '{file}'").fetchall()))
    return "\n".join(parts)


def modes(*files: Path) -> set[int]:
    return {stat.S_IMODE(file.stat().st_mode) for file in files}


def groups() -> Path:
    """Return where control groups of version 2 are mounted."""
    mounts = [line.split() for line in Path("/proc/mounts").read_text().splitlines()]
    return next(Path(words[1]) for words in mounts if words[2] == "cgroup2")


@pytest.fixture
def recorded(spool, tmp_path):
    """Return the trace, its mount and the directory of the operator's key."""
    mount, programs, home = spool("ext4"), tmp_path / "bin", tmp_path / "home"
    for folder in ("new", "cur", "tmp"):
        for user in ("wilhelmina", "bartholomew"):
            (mount / "zeppelin.example" / user / "Maildir" / folder).mkdir(parents=True)
    for place in (programs, mount / "sharedbox", mount / "imap", mount / "horatio"):
        place.mkdir()
    for name in ("wilhelmina", "fetch-wilhelmina", "nightly-archive", "imap"):
        shutil.copy("/bin/dd", programs / name)
    shutil.copy("/bin/dd", mount / "sharedbox" / "oddtool")
    (programs / "renamed.py").write_text(RENAMED)
    group = groups() / "spoolscope-test-horatio.slice" / "horatio.service"
    group.mkdir(parents=True)
    script = SCRIPT.format(mount=mount, bin=programs, python=sys.executable, group=group)
    trace = tmp_path / "trace"
    try:
        words = ("record", "-q", "--spool", mount, "-o", trace, "--", "sh", "-c", script)
        spoolscope(home, *words)
    finally:
        group.rmdir()
        group.parent.rmdir()
    return trace, mount, home


def test_names_are_in_the_book_only(recorded, tmp_path):
    trace, mount, home = recorded
    kept = told(trace)
    assert [name for name in (*SECRET, str(mount)) if name in kept] == []
    assert all(name in kept for name in ("nightly-archive", "'imap'"))
    assert json.loads((trace / "meta.json").read_text())["program_names"] == "private hidden"
    [book] = (home / "spoolscope").glob("*.names")
    assert modes(book) == {0o600}

    plain = spoolscope(home, "explain", trace, "--blame")
    assert "--names shows them" in plain
    assert [name for name in SECRET if name in plain] == []
    real = spoolscope(home, "explain", trace, "--blame", "--names")
    assert {"wilhelmina", "fetch-wilhelmin", "bartholomew-7", "oddtool", "sharedbox"} <= {
        *real.replace("/", " ").split()
    }
    assert "Real names: do not give away." in real
    shown = json.loads(spoolscope(home, "info", trace, "--json", "--names"))
    assert shown["spools"][0]["mount"] == str(mount)
    assert shown["names"] == "real names: do not give away"

    edges, report = tmp_path / "edges.parquet", tmp_path / "report.html"
    spoolscope(home, "explain", trace, "--edges", edges, "--names")
    spoolscope(home, "report", trace, "-o", report, "--names", "-q")
    assert modes(edges, report) == {0o600}
    text = report.read_text()
    assert "wilhelmina" in text
    assert "real names: do not give away" in text
    given = tmp_path / "given.html"
    assert "--names shows them" in spoolscope(home, "report", trace, "-o", given, "-q")
    assert [name for name in (*SECRET, str(mount)) if name in given.read_text()] == []


def test_whoever_only_gets_the_trace_sees_no_name_and_no_hint(recorded, tmp_path):
    trace, mount, _ = recorded
    for words in (("explain", trace, "--blame"), ("info", trace), ("plan", trace)):
        said = spoolscope(tmp_path / "stranger", *words)
        assert "--names" not in said
        assert [name for name in (*SECRET, str(mount)) if name in said] == []
    page = tmp_path / "page.html"
    said = spoolscope(tmp_path / "stranger", "report", trace, "-o", page, "-q").splitlines()
    assert "" not in said
    assert not any("--names" in line for line in said)
    refused = spoolscope(tmp_path / "stranger", "explain", trace, "--names", code=(2,))
    assert "no book of the names" in refused
    assert not (tmp_path / "stranger").exists()


def test_every_reader_takes_real_names(recorded):
    """Check plan, which reads tables in parts and as a whole, and explain, with DuckDB."""
    trace, _, home = recorded
    query = f"SELECT tid, seq FROM '{trace}/syscalls.parquet' WHERE syscall LIKE 'rename%'"
    [(tid, seq)] = duckdb.connect().execute(query).fetchall()
    said = spoolscope(home, "plan", trace, "--names", "--explain", f"{tid}:{seq}")
    assert "zeppelin.example/wilhelmina/Maildir/" in said
    assert "Real names: do not give away." in said


def test_all_programs_can_be_hidden(spool, tmp_path):
    mount, trace = spool("ext4"), tmp_path / "trace"
    command = ("sh", "-c", f"dd if=/dev/zero of={mount}/a count=1 2>/dev/null; sync {mount}/a")
    words = ("--hide-programs", "--spool", mount, "-o", trace)
    spoolscope(tmp_path / "home", "record", "-q", *words, "--", *command)
    comms = duckdb.connect().execute(f"SELECT DISTINCT comm FROM '{trace}/syscalls.parquet'")
    names = {name for (name,) in comms.fetchall()}
    assert len(names) >= 3
    assert all(name.startswith("+") for name in names)
    real = spoolscope(tmp_path / "home", "explain", trace, "--names")
    assert {"dd", "sync"} <= set(real.split())


def test_kept_names_need_no_book_and_no_hint(spool, tmp_path):
    mount, trace, home = spool("ext4"), tmp_path / "trace", tmp_path / "home"
    command = ("sh", "-c", f"echo > {mount}/wilhelmina")
    words = ("--keep-names", "--spool", mount, "-o", trace)
    spoolscope(home, "record", "-q", *words, "--", *command)
    assert "wilhelmina" in told(trace)
    assert "--names" not in spoolscope(home, "explain", trace) + spoolscope(home, "info", trace)
    report = tmp_path / "r.html"
    spoolscope(home, "report", trace, "-o", report, "-q")
    assert modes(report) == {0o600}
    assert not home.exists()
    assert set(TABLES) >= {file.stem for file in trace.glob("*.parquet")}
