"""A recording ends in order whenever it is asked to, and with any process that waits for it."""

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from spoolscope.traces.capture import read_capture
from spoolscope.traces.trace import Trace

pytestmark = [pytest.mark.root, pytest.mark.steady]

FILES = 500
RECORD = [sys.executable, "-m", "spoolscope.cli.main", "record", "--keep-names"]
# At this rate the snapshot takes as many seconds as there are names.
SLOWLY = ["--snapshot-rate", "1"]


@pytest.fixture
def mount(spool) -> Path:
    """Return a spool with some names."""
    place = spool("ext4")
    for number in range(FILES):
        (place / f"m{number}").touch()
    return place


def begun(mount: Path, tmp_path: Path, *words: object) -> "subprocess.Popen[str]":
    command = [*RECORD, "--spool", str(mount), "-o", str(tmp_path / "t"), *map(str, words)]
    return subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def until(what: Callable[[], object], seconds: float = 30) -> None:
    deadline = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def said(tmp_path: Path, event: str) -> bool:
    answers = tmp_path.glob(".t.*/capture.json")
    return any(f'"{event}"' in file.read_text() for file in answers)


def recorders(tmp_path: Path) -> list[int]:
    """Return the living native processes of that recording, found in /proc."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            words = (process / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if words[0].endswith(b"spoolscope-record") and str(tmp_path).encode() in b" ".join(words):
            found.append(int(process.name))
    return found


def look(mount: Path) -> None:
    for number in range(FILES):
        (mount / f"m{number}").stat()


def test_the_duration_counts_during_the_snapshot(mount, tmp_path):
    recording = begun(mount, tmp_path, *SLOWLY, "-d", "1")
    until(lambda: said(tmp_path, "begun"))
    look(mount)
    _, errors = recording.communicate(timeout=60)
    assert recording.returncode == 0, errors
    assert "before the snapshot was whole" in errors
    trace = Trace.open(tmp_path / "t")
    assert 1e9 <= trace.meta["duration_ns"] < FILES * 1e9 / 10
    assert trace.meta["snapshot"]["kind"] == "partial"
    assert 0 < trace.meta["counts"]["tree"] < 10
    assert trace.meta["counts"]["syscalls"] >= FILES
    assert (trace.meta["complete"], trace.meta["ended"]) == (True, "asked")
    told = subprocess.run(
        [*RECORD[:3], "info", tmp_path / "t"], check=True, capture_output=True, text=True
    )
    assert "partial" in told.stdout


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_during_the_snapshot_ends_in_order(number, mount, tmp_path):
    recording = begun(mount, tmp_path, *SLOWLY, "--", "touch", mount / "by-command")
    until(lambda: said(tmp_path, "begun"))
    look(mount)
    recording.send_signal(number)
    _, errors = recording.communicate(timeout=30)
    assert recording.returncode == 0, errors
    assert "COMMAND did not begin" in errors
    trace = Trace.open(tmp_path / "t")
    assert trace.meta["snapshot"]["kind"] == "partial"
    assert trace.meta["complete"]
    assert not (mount / "by-command").exists()
    assert recorders(tmp_path) == []


MS_BIND = 4096  # of <sys/mount.h>
PHASES = {
    "attach": lambda tmp_path: recorders(tmp_path),
    "snapshot": lambda tmp_path: said(tmp_path, "begun"),
    "recording": lambda tmp_path: said(tmp_path, "ready"),
}


@pytest.mark.parametrize("command", [[], ["--", "sleep", "600"]], ids=["all", "command"])
@pytest.mark.parametrize("phase", PHASES)
def test_a_killed_front_end_takes_its_recorder_along(phase, command, mount, tmp_path):
    slowly = SLOWLY if phase == "snapshot" else []
    recording = begun(mount, tmp_path, *slowly, *command)
    until(lambda: PHASES[phase](tmp_path))
    assert recorders(tmp_path)
    recording.kill()
    recording.communicate(timeout=30)
    until(lambda: not recorders(tmp_path), 20)
    [left] = tmp_path.glob(".t.*")
    if phase != "attach":
        capture = read_capture(left / "capture.seg")
        assert capture.closed
        # A running command is ended first.
        by_command = phase == "recording" and command
        assert capture.meta["ended"] == ("command ended" if by_command else "asked")
        assert capture.meta["snapshot_whole"] == (phase == "recording")


@pytest.mark.parametrize("phase", ["snapshot", "recording"])
def test_a_spool_that_is_unmounted_is_told(phase, mount, tmp_path):
    """While the walk is in the spool, only ``umount -l`` unmounts it."""
    slowly, lazily = (SLOWLY, ["-l"]) if phase == "snapshot" else ([], [])
    recording = begun(mount, tmp_path, *slowly, "-d", "3")
    until(lambda: PHASES[phase](tmp_path))
    look(mount)
    before = time.time_ns()
    subprocess.run(["umount", *lazily, mount], check=True)
    _, errors = recording.communicate(timeout=60)
    subprocess.run(["mount", "-o", "loop", tmp_path / "ext4.img", mount], check=True)
    assert recording.returncode == 0, errors
    lines = [line for line in errors.splitlines() if line.startswith("spoolscope: warning")]
    assert sum("was unmounted" in line for line in lines) == 1
    assert f"the spool {mount} was unmounted" in errors
    (found,) = Trace.open(tmp_path / "t").meta["spools"]
    assert before <= found["unmounted_ns"] < before + 2_000_000_000


def test_a_spool_in_whose_place_another_one_is_mounted_at_once(mount, tmp_path):
    """The other one gets the number that the kernel had for the mount of the spool."""
    other = tmp_path / "other"
    other.mkdir()
    libc = ctypes.CDLL(None, use_errno=True)

    def number(at: Path = mount) -> int:
        lines = Path("/proc/self/mountinfo").read_text().splitlines()
        return next(int(line.split()[0]) for line in lines if line.split()[4] == str(at))

    def bind(at: Path) -> None:
        assert libc.mount(os.fsencode(other), os.fsencode(at), None, MS_BIND, None) == 0

    first = number()
    recording = begun(mount, tmp_path, "-d", "3")
    until(lambda: PHASES["recording"](tmp_path))
    # The kernel gives the lowest free number: mounts take those below that of the spool.
    below = []
    while not below or number(below[-1]) < first:
        below.append(tmp_path / f"below{len(below)}")
        below[-1].mkdir()
        bind(below[-1])
    before = time.time_ns()
    assert libc.umount2(os.fsencode(mount), 0) == 0
    bind(mount)
    reused = number() == first
    _, errors = recording.communicate(timeout=60)
    for one in (*below, mount):
        subprocess.run(["umount", one], check=True)
    subprocess.run(["mount", "-o", "loop", tmp_path / "ext4.img", mount], check=True)
    assert reused, "the kernel gave it another number: this test proves nothing"
    assert recording.returncode == 0, errors
    (found,) = Trace.open(tmp_path / "t").meta["spools"]
    assert before <= found["unmounted_ns"] < before + 2_000_000_000
