"""Sums end when their spool is unmounted or mounted over, and say so at once."""

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from spoolscope.traces.errors import INCOMPLETE
from spoolscope.traces.rollups.files import Rollups

pytestmark = [pytest.mark.root, pytest.mark.steady]

ROLLUP = [sys.executable, "-m", "spoolscope.cli.main", "record", "--rollup", "-q", "--keep-names"]
LONG_S, SOON_S = 20, 5


def until(what: Callable[[], object], seconds: float = 30) -> None:
    deadline = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def begun(spool: Path, output: Path, *words: str) -> "subprocess.Popen[str]":
    """Return a recorder that has begun."""
    command = [*ROLLUP, "--spool", str(spool), "-o", str(output), "-d", str(LONG_S), *words]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    answers = (".minutes-*/capture.json", "windows-*/.capture/capture.json")
    until(
        lambda: any('"ready"' in file.read_text() for one in answers for file in output.glob(one))
    )
    return process


@pytest.mark.parametrize("words", [[], ["--last", "1m"]])
def test_an_unmounted_spool_ends_the_recorder(spool, tmp_path, words):
    mount, output = spool("ext4"), tmp_path / "rollups"
    recorder = begun(mount, output, *words)
    (mount / "mail").touch()
    subprocess.run(["umount", mount], check=True)
    _, errors = recorder.communicate(timeout=60)
    subprocess.run(["mount", "-o", "loop", tmp_path / "ext4.img", mount], check=True)
    assert recorder.returncode == INCOMPLETE, errors
    assert f"warning: the recording ends, as the spool {mount} was unmounted" in errors
    assert f"the recorder ended early: the spool {mount} was unmounted: start it again" in errors
    assert "is lost" not in errors
    rows = Rollups(output).read("minutes").to_pylist()
    assert sum(row["calls"] for row in rows) > 0
    assert not list(output.glob(".minutes-*"))


def test_a_filesystem_that_is_mounted_late_over_the_directory_ends_the_recorder(spool, tmp_path):
    part = spool("ext4") / "mail"
    (part / "archive").mkdir(parents=True)
    recorder = begun(part, tmp_path / "rollups")
    subprocess.run(["mount", "-t", "tmpfs", "none", part / "archive"], check=True)
    time.sleep(2)  # as long as it takes to find one
    assert recorder.poll() is None, "it is mounted below the spool"
    subprocess.run(["mount", "-t", "tmpfs", "none", part], check=True)
    began = time.monotonic()
    _, errors = recorder.communicate(timeout=60)
    for place in (part, part / "archive"):
        subprocess.run(["umount", place], check=True)
    assert time.monotonic() < began + SOON_S
    assert recorder.returncode == INCOMPLETE, errors
    assert f"the recording ends, as the spool {part} has another filesystem mounted" in errors
