"""Temporary files are removed by their process, or by the next one if it was killed."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import sys
from spoolscope.analysis.scratch import scratch
(scratch() / "spilled").write_text("data")
print(scratch(), flush=True)
sys.stdin.read()
"""


@pytest.fixture
def start(tmp_path):
    """Return ``start()``, which starts a process with a scratch directory until its input ends."""
    begun = []

    def one():
        begun.append(subprocess.Popen(
            [sys.executable, "-c", PROGRAM], env=os.environ | {"TMPDIR": str(tmp_path)},
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        ))  # fmt: skip
        return begun[-1], Path(begun[-1].stdout.readline().strip())

    yield one
    for process in begun:
        process.kill()
        process.communicate()


def test_nothing_stays_when_a_process_ends(start, tmp_path):
    process, place = start()
    assert place.parent == tmp_path
    assert (place / "spilled").read_text() == "data"
    process.communicate()
    assert list(tmp_path.iterdir()) == []


def test_what_a_killed_process_left_goes_and_what_is_in_use_stays(start):
    killed, left = start()
    _running, used = start()
    killed.send_signal(signal.SIGKILL)
    killed.wait()
    assert (left / "spilled").exists()
    start()
    assert not left.exists()
    assert (used / "spilled").exists()


def test_a_link_of_that_name_is_not_followed(start, tmp_path):
    precious = tmp_path / "precious"
    precious.mkdir()
    (tmp_path / "spoolscope-explain-link").symlink_to(precious)
    start()
    assert precious.is_dir()
