"""One work under strace with many options: the same calls with any option."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from spoolscope.traces.trace import Trace

pytestmark = pytest.mark.slow

FULL = ("-f", "-ff", "-ttt", "-T", "-s", "0", "-y")
# Several processes that wait for each other, as their order is compared, too.
WORK = """
import fcntl, os, sys
os.chdir(sys.argv[1] + "/mail")
r, w = os.pipe()
os.mkdir("new")
first = os.open("new/1", os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600)
os.write(first, b"x" * 1000)
os.fsync(first)
child = os.fork()
if child == 0:
    os.read(r, 1)
    os.rename("new/1", "new/2")
    second = os.open("new/2", os.O_RDWR)
    fcntl.lockf(second, fcntl.LOCK_EX)
    os.pread(second, 100, 900)
    os.ftruncate(second, 10)
    os.symlink("2", "new/link")
    os.readlink("new/link")
    os.unlink("new/link")
    os.close(second)
    os._exit(0)
os.lseek(first, 10, os.SEEK_SET)
os.read(first, 100)
os.write(w, b"x")
os.waitpid(child, 0)
for name in ("new/1", "new/2"):
    try:
        os.stat(name)
    except FileNotFoundError:
        pass
os.listdir("new")
os.link("new/2", "old")
os.close(first)
"""
FORMS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "-tt": (("-f", "-tt"), ()),
    "-tt -T": (("-f", "-tt", "-T"), ()),
    "-t": (("-f", "-t"), ()),
    "-t -T": (("-f", "-t", "-T"), ()),
    "-r": (("-f", "-r"), ()),
    "-r -tt": (("-f", "-r", "-tt"), ()),
    "no times": (("-f",), ()),
    "no times, -T": (("-f", "-T"), ()),
    "-n -i": (("-f", "-tt", "-n", "-i"), ()),
    "-Y": (("-f", "-tt", "-Y"), ()),
    "-ff -tt": (("-ff", "-tt"), ()),
    "-ff -tt -y": (("-ff", "-tt", "-y"), ()),
}
COMPARED = ("syscall", "fd", "dirfd", "flags", "cmd", "offset", "ret", "errno", "lock_type", "path",
            "path2")  # fmt: skip


def imported(work: Path, options: tuple[str, ...], words: tuple[str, ...]) -> Trace:
    """Run the work under strace in a fresh tree, and import the output."""
    spool = work / "spool"
    subprocess.run(["rm", "-rf", spool], check=True)
    (spool / "mail").mkdir(parents=True)
    command = ["strace", *options, "-o", work / "log", sys.executable, "-IS", "-c", WORK, spool]
    subprocess.run(command, check=True)
    logs = sorted(work.glob("log*"))
    return brought(logs, spool, work / "trace", words)


def brought(logs: list[Path], spool: Path, trace: Path, words: tuple[str, ...]) -> Trace:
    verb = [sys.executable, "-m", "spoolscope.cli.main", "import", "strace", *logs, "--json"]
    done = subprocess.run(
        [*verb, "--root", spool, "--keep-names", "-o", trace, *words],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["complete"]
    return Trace.open(trace)


def told(trace: Trace) -> list[list[dict[str, Any]]]:
    """Return the fields of each call on the spool, by process in order of begin."""
    paths = {row["path_id"]: row["path"] for row in trace.table("paths").to_pylist()}
    by_tid: dict[int, list[dict[str, Any]]] = {}
    for row in trace.table("syscalls").to_pylist():
        row["path"], row["path2"] = paths.get(row["path_id"]), paths.get(row["path2_id"])
        if row["syscall"] == "readlink":  # -s cuts what the link holds
            row["path2"] = None
        if "clone" not in row["syscall"]:  # its result is a pid
            by_tid.setdefault(row["tid"], []).append({name: row[name] for name in COMPARED})
    return list(by_tid.values())


def order(trace: Trace) -> list[tuple[str, str | None]]:
    """Return the calls of all processes that change names, in order of end."""
    paths = {row["path_id"]: row["path"] for row in trace.table("paths").to_pylist()}
    rows = [row for row in trace.table("syscalls").to_pylist() if row["path_id"] is not None]
    rows.sort(key=lambda row: row["ts_ns"] + row["dur_ns"])
    changes = ("mkdir", "rename", "symlink", "unlink", "link", "ftruncate", "newfstatat")
    return [(r["syscall"], paths[r["path_id"]]) for r in rows if r["syscall"] in changes]


@pytest.fixture(scope="module")
def full(tmp_path_factory: pytest.TempPathFactory) -> Trace:
    """Return the trace from the most detailed options."""
    return imported(tmp_path_factory.mktemp("full"), FULL, ())


@pytest.mark.parametrize("form", FORMS)
def test_a_form_that_says_less_gives_the_same_calls(
    form: str, full: Trace, require, tmp_path: Path
) -> None:
    require("strace")
    trace = imported(tmp_path, *FORMS[form])
    wanted = told(full)
    assert sum(map(len, wanted)) >= 25
    assert told(trace) == wanted
    assert order(trace) == order(full)


def test_one_process_without_a_number_or_a_directory(require, tmp_path: Path) -> None:
    """Check the options of Dovecot's guide: strace -tt -o log -p PID of a running process."""
    require("strace")
    (tmp_path / "spool").mkdir()
    work = (
        "import os, sys\nos.chdir(sys.argv[1])\nprint('ready', flush=True)\nsys.stdin.readline()\n"
        "fd = os.open('a', os.O_CREAT | os.O_WRONLY, 0o600)\nos.write(fd, b'x')\nos.close(fd)\n"
        "os.rename('a', 'b')\n"
    )
    command = [sys.executable, "-IS", "-c", work, tmp_path / "spool"]
    log, pipe = tmp_path / "log", subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdout.readline()
        tracer = subprocess.Popen(
            ["strace", "-tt", "-o", log, "-p", str(process.pid)], stderr=pipe, text=True
        )
        assert tracer.stderr is not None
        assert "attached" in tracer.stderr.readline()
        process.stdin.write("\n")
        process.stdin.close()
        process.wait()
        tracer.wait()
        tracer.stderr.close()
    spool = tmp_path / "spool"
    words = ("--pid", str(process.pid), "--cwd", str(spool))
    (calls,) = told(brought([log], spool, tmp_path / "trace", words))
    assert [(c["syscall"], c["path"], c["ret"]) for c in calls if c["path"]] == [
        ("openat", "a", 3), ("write", "a", 1), ("close", "a", 0), ("rename", "a", 0),
    ]  # fmt: skip
