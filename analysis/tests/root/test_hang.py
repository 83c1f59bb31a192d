"""Calls that had not returned when the recording ended are stated, with what they wait for."""

import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from spoolscope.analysis.explain import explain
from spoolscope.tracers.session import Request, record
from spoolscope.traces.trace import Trace

pytestmark = [pytest.mark.root, pytest.mark.steady]

# It writes until a write takes over a second, and prints how long that one took.
WRITER = """
import os, sys, time
file = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT)
longest = 0
while longest < 1_000_000_000:
    begun = time.monotonic_ns()
    os.pwrite(file, b"x" * 4096, 0)
    longest = time.monotonic_ns() - begun
    time.sleep(0.01)
print(longest)
"""


def test_a_hang_since_before_the_recording_is_stated(spool, tmp_path):
    mount = spool("ext4")
    command = [sys.executable, "-c", WRITER, mount / "a"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
        time.sleep(0.5)
        subprocess.run(["fsfreeze", "-f", mount], check=True)
        try:
            state = Path(f"/proc/{writer.pid}/stat")
            while ") D " not in state.read_text():
                time.sleep(0.01)
            words = ["record", "-q", "--spool", mount, "-d", "1", "-o", tmp_path / "t"]
            done = subprocess.run(
                [sys.executable, "-m", "spoolscope.cli.main", *words, "--keep-names"],
                capture_output=True,
                text=True,
            )
        finally:
            subprocess.run(["fsfreeze", "-u", mount], check=True)
        assert int(writer.communicate(timeout=60)[0]) > 1e9
    assert done.returncode == 0, done.stderr
    said = [line for line in done.stderr.splitlines() if f"(process {writer.pid})" in line]
    assert len(said) == 1, done.stderr
    assert "waits for a frozen filesystem" in said[0]
    assert "slept in the kernel during the whole recording" in done.stderr


def test_a_hang_at_the_end_is_stated(spool, tmp_path):
    mount = spool("ext4")
    writers: list[subprocess.Popen[str]] = []

    def freeze() -> None:
        for name in ("a", "b"):
            command = [sys.executable, "-c", WRITER, mount / name]
            writers.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
        time.sleep(1)
        subprocess.run(["fsfreeze", "-f", mount], check=True)

    freezing = threading.Timer(1.5, freeze)
    freezing.start()
    try:
        summary = record(
            Request(spools=[mount], output=tmp_path / "t", duration_s=6, keep_names=True)
        )
    finally:
        freezing.join()
        subprocess.run(["fsfreeze", "-u", mount], check=True)
    took = [int(writer.communicate(timeout=60)[0]) for writer in writers]
    trace = Trace.open(summary.trace)
    calls = [call for call in trace.meta["under_way"] if call["pid"] in {w.pid for w in writers}]
    assert {call["pid"] for call in calls} == {writer.pid for writer in writers}
    for call in calls:
        assert call["syscall"] == "pwrite64"
        assert 1e9 < call["dur_ns"] < min(took)
    (said,) = [said for said in explain(trace).remarks if "had not returned" in said]
    assert said.startswith("2 calls had not returned when the recording ended")
    assert "pwrite64 on " in said
    assert "frozen" in said
