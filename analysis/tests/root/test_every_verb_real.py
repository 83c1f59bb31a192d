"""Every verb on unusual real recordings: two filesystems, 32-bit calls, a freeze."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from spoolscope.cli.main import group
from spoolscope.traces.errors import INCOMPLETE
from spoolscope.traces.recording import Recording
from spoolscope.traces.trace import Trace

pytestmark = [pytest.mark.root, pytest.mark.steady]

# A bind that fails for another reason than its name, and one that fails for it; a lock with a
# waiter until the recording is over; a call through the table of 32-bit programs; names that
# control terminals; both spools; at the end an event that freezes a flight recorder.
WORK = r"""
import ctypes, fcntl, mmap, os, socket, subprocess, sys, threading, time
one, two, compat = sys.argv[1:]
libc = ctypes.CDLL(None)
for spool in (one, two):
    os.chdir(spool)
    os.makedirs("box/new")
    for n in range(30):
        fd = os.open(f"box/new/{n}", os.O_CREAT | os.O_RDWR, 0o600)
        os.write(fd, b"x" * 5000)
        os.fsync(fd)
        os.close(fd)
    os.rename("box/new/1", "box/new/a\x1b]0;title\x07\nb")
    os.symlink("box/new/2", "link")
    open("link").read()
    with open("box/new/3", "r+b") as file, mmap.mmap(file.fileno(), 0) as mapped:
        mapped[0] = 7
    bound = socket.socket(socket.AF_UNIX)
    bound.bind("socket")
    try:
        bound.bind("another")
    except OSError:
        pass
    bound.close()
subprocess.run([compat, one], check=True)
holder = os.open("lock", os.O_CREAT | os.O_RDWR)
fcntl.flock(holder, fcntl.LOCK_EX)
def wait():
    fcntl.flock(os.open("lock", os.O_RDWR), fcntl.LOCK_EX)
threading.Thread(target=wait, daemon=True).start()
time.sleep(0.3)
try:
    os.rmdir("box")
except OSError:
    pass
time.sleep(1.5)
os._exit(0)
"""
COMPAT = r"""
#include <fcntl.h>
#include <unistd.h>
int main(int argc, char **argv)
{
	int fd = open(argv[argc - 1], O_RDONLY), r;
	__asm__ volatile("int $0x80" : "=a"(r) : "a"(133), "b"(fd)); /* fchdir */
	return 0;
}
"""
WHOLE, FROZEN = "whole", "frozen"


def record(*words: object) -> None:
    command = [sys.executable, "-m", "spoolscope.cli.main", "record", *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode in (0, INCOMPLETE), (words, done.stderr)
    plain(done.stdout, done.stderr)


def spoolscope(*words: object) -> str:
    done = CliRunner().invoke(group, [*map(str, words)], standalone_mode=False)
    if done.exception is not None:
        raise done.exception
    assert done.return_value in (0, None, INCOMPLETE), (words, done.stderr)
    plain(done.stdout, done.stderr)
    return done.stdout


def plain(*outputs: str) -> None:
    for output in outputs:
        assert "Traceback" not in output
        assert not {"\x1b", "\x07"} & {*output}


def told(*words: object) -> object:
    found: object = json.loads(spoolscope(*words, "--json"))
    return found


@pytest.fixture(params=[WHOLE, FROZEN])
def trace(request, spool, tmp_path: Path) -> Path:
    """Return a recording of the work: all of it, or the window that a flight recorder froze."""
    one, two = spool("ext4"), spool("xfs")
    (tmp_path / "compat.c").write_text(COMPAT)
    subprocess.run(["cc", "-o", tmp_path / "compat", tmp_path / "compat.c"], check=True)
    output = tmp_path / "trace"
    words = ["--spool", one, "--spool", two, "-o", output, "--keep-names"]
    words += ["--snapshot", "touched"] if request.param == WHOLE else []
    if request.param == FROZEN:
        words += ["--last", "60s", "--freeze-on", "errno=ENOTEMPTY"]
    work = [sys.executable, "-c", WORK, one, two, tmp_path / "compat"]
    record("-q", *words, "--", *work)
    if request.param == WHOLE:
        return output
    spoolscope("info", output)
    told("info", output)
    return Recording.open(output).traces()[0]


def test_every_verb(trace: Path, tmp_path: Path) -> None:
    meta = Trace.open(trace).meta
    assert meta["compat_calls"] >= 1
    assert len({spool["fstype"] for spool in meta["spools"]}) == 2
    assert "frozen" not in meta or meta["frozen"]["why"].startswith("errno 39")
    assert "not replayed" in spoolscope("plan", trace)  # the bind that failed
    for words in (["info"], ["explain"], ["explain", "--blame", "--unknown"], ["plan"],
                  ["plan", "--only", "python*"], ["plan", "--scale-users", "2"],
                  ["plan", "--slice", "..500ms"]):  # fmt: skip
        spoolscope(words[0], trace, *words[1:])
        assert told(words[0], trace, *words[1:])
    spoolscope("info", trace, "--columns")
    first = _replayed_call(trace)
    assert first in spoolscope("plan", trace, "--explain", first)
    assert told("plan", trace, "--explain", first)
    key = tmp_path / "key"
    assert told("scrub", trace, "-o", tmp_path / "scrubbed", "--key-file", key)
    spoolscope("plan", tmp_path / "scrubbed")
    (target := tmp_path / "target").mkdir()
    for name, words in (("one", []), ("two", ["--json"])):
        spoolscope("replay", trace, "--on", f"dir:{target}", "--no-record", "--pace", "afap",
                   "-o", tmp_path / name, *words)  # fmt: skip
        spoolscope("compare", tmp_path / name, *words)
        spoolscope("report", tmp_path / name, "-o", tmp_path / f"{name}.html", *words)
        spoolscope("report", trace, "-o", tmp_path / f"{name}-trace.html", *words)


def _replayed_call(trace: Path) -> str:
    """Return thread and call number of a rename."""
    query = "SELECT tid, seq FROM syscalls WHERE syscall = 'rename' AND errno = 0 LIMIT 1"
    ((tid, seq),) = Trace.open(trace).connect().execute(query).fetchall()
    return f"{tid}:{seq}"
