"""The screen of top on an emulated terminal: keys, sizes, names, and the state afterwards."""

import contextlib
import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pyte
import pytest

from spoolscope.traces.trace import Trace

pytestmark = pytest.mark.root

TITLE = "\x1b]0;owned\x07"
LOAD = """
import os, sys, time
os.chdir(sys.argv[1])
with open("/proc/self/comm", "w") as comm:
    comm.write("\\x1b]0;owned\\x07")
names = ["mail", "other\\x1b[2J"]
while True:
    for name in names:
        with open(name, "w") as file:
            file.write("x" * 100)
            file.flush()
            os.fsync(file)
    time.sleep(0.02)
"""


class Seen:
    """A terminal: the program's output there, and the visible screen."""

    def __init__(self, words: list[object], place: Path) -> None:
        self.ours, theirs = pty.openpty()
        self.screen = pyte.Screen(80, 24)
        self.screen.title = "mine"
        self._stream = pyte.ByteStream(self.screen)
        self.written = b""
        self.before = termios.tcgetattr(theirs)
        self.theirs = theirs
        self.resize(80, 24)
        self.process = subprocess.Popen(
            list(map(str, words)), stdin=theirs, stdout=theirs, stderr=theirs, cwd=place,
            env=os.environ
            # Those of another terminal, as in a shell that exports them.
            | {"TERM": "xterm-256color", "TMPDIR": str(place), "COLUMNS": "200", "LINES": "60"},
        )  # fmt: skip

    def resize(self, columns: int, lines: int) -> None:
        fcntl.ioctl(self.theirs, termios.TIOCSWINSZ, struct.pack("4H", lines, columns, 0, 0))
        self.screen.resize(lines, columns)

    def press(self, keys: str) -> None:
        os.write(self.ours, keys.encode())

    def until(self, what: Callable[[], object]) -> None:
        """Read until the condition holds."""
        deadline = time.monotonic() + 30
        while not what():
            assert time.monotonic() < deadline, (
                "\n".join(self.screen.display),
                self.process.poll(),
                self.written[-2000:],
            )
            if select.select([self.ours], [], [], 0.1)[0]:
                part = os.read(self.ours, 65536)
                self.written += part
                self._stream.feed(part)

    def shows(self, text: str) -> Callable[[], object]:
        return lambda: re.search(text, "\n".join(self.screen.display))


@pytest.fixture
def top(spool, tmp_path) -> Iterator[tuple[Seen, int]]:
    mount, place = spool("ext4"), tmp_path / "here"
    place.mkdir()
    command = [sys.executable, "-m", "spoolscope.cli.main", "top", "--deep"]
    command += ["--spool", mount, "-i", "1s"]
    with subprocess.Popen([sys.executable, "-S", "-c", LOAD, mount]) as load:
        seen = Seen([*command, "--names"], place)
        try:
            yield seen, load.pid
        finally:
            load.kill()
            seen.process.send_signal(signal.SIGINT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                seen.process.wait(60)
            seen.process.kill()
            seen.process.wait()
            os.close(seen.ours)
            os.close(seen.theirs)


def test_a_screen_is_driven_by_keys_and_by_nothing_else(top, tmp_path):
    seen, pid = top
    seen.until(seen.shows(rf"(?m)^{pid} +\\x1b\]0;owned\\x0"))
    assert "real names" in seen.screen.display[0]
    seen.press("c")
    seen.until(seen.shows(r"\[causes\]"))
    seen.until(seen.shows(r"(?m)^journal commit +\S+ m?s"))
    seen.press("j")
    seen.until(seen.shows(rf"jbd2 .* call .*\({pid}\)"))
    seen.press("m")
    seen.until(seen.shows(r"(?m)^\(top of the spool\)"))
    seen.press("f")
    seen.until(seen.shows(r"(?m)^other\\x1b\[2J "))
    seen.press("/mail\r")
    seen.until(lambda: "Only rows with 'mail'" in seen.screen.display[-1])
    assert not seen.shows("other")()
    seen.press("\x1bp ")
    seen.until(seen.shows("PAUSED"))
    # The screen shows the content of the trace of that interval.
    seen.press("k")
    seen.until(seen.shows(r"kept as top-\S+\.trace, with real names"))
    [row] = [line for line in seen.screen.display if line.startswith(str(pid))]
    kept = tmp_path / "here" / re.search(r"top-\S+\.trace", seen.screen.display[-1])[0].rstrip(",")
    con = Trace.open(kept).connect()
    calls = con.execute(
        "SELECT count(*) FROM syscalls WHERE pid = ? AND syscall NOT IN ('chdir')", [pid]
    ).fetchone()[0]
    assert f" {calls:,} " in row, (calls, row)
    asked = con.execute("SELECT count(*) FROM commits WHERE trigger_pid = ?", [pid]).fetchone()[0]
    assert f" {asked} " in row
    # A small terminal shows what fits.
    seen.resize(50, 8)
    seen.until(lambda: seen.shows("PAUSED")() and seen.shows(r"(?m)^PID")())
    assert len(seen.screen.display) == 8

    # After the end only kept traces remain, and the terminal is as before.
    seen.press("q")
    seen.until(lambda: seen.process.poll() is not None)
    seen.until(lambda: not select.select([seen.ours], [], [], 0.2)[0])
    assert seen.process.returncode == 0
    assert seen.shows(r"Wrote top-\S+\.trace")()
    assert seen.screen.title == "mine"
    assert TITLE.encode() not in seen.written
    assert seen.written.count(b"\x1b[?1049h") == seen.written.count(b"\x1b[?1049l") == 1
    assert termios.tcgetattr(seen.theirs) == seen.before
    assert list((tmp_path / "here").iterdir()) == [kept]
