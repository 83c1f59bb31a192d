"""A recorder takes over from another one: no call is summed twice, and none is missed.

The second source is the program that makes the calls: it notes when each of them returned.
"""

import os
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from spoolscope.traces.rollups.files import Rollups

# Not steady: a recorder that is kept off the CPU for over a second sums two seconds as one.
pytestmark = pytest.mark.root

# It looks for a missing file, but not around the turn of a second.
TICKER = """
import os, sys, time
with open(sys.argv[2], "w", 1) as out:
    while True:
        if 0.05 < time.time() % 1 < 0.95:
            try:
                os.rmdir(sys.argv[1] + "/missing")
            except FileNotFoundError:
                out.write(f"{time.time():.6f}\\n")
        time.sleep(0.002)
"""
# A recorder whose minutes last a second, and which has a successor as the service has it.
RECORDER = """
import sys
from pathlib import Path
from spoolscope.cli.freeze_rules import all_cause_rules
from spoolscope.cli.service import own_command, succeeded_by
from spoolscope.tracers.request import Request
from spoolscope.tracers.rolling import record_rollups
with succeeded_by(own_command("--take-over")) as successor:
    done = record_rollups(
        Request([Path(sys.argv[1])], Path(sys.argv[2]), duration_s=60, rollup_s=1, keep_names=True,
                cause_rules=all_cause_rules()),
        take_over="--take-over" in sys.argv,
    )
    successor.took_over = done.handed_over
"""
WAIT_S = 40


def recorded(rollups: Path) -> list[dict[str, object]]:
    if not (rollups / "schema=1").exists():
        return []
    rows = Rollups(rollups).read("minutes").to_pylist()
    return sorted(rows, key=lambda row: row["minute_s"])


def wait_until(is_so: Callable[[], bool]) -> None:
    until = time.monotonic() + WAIT_S
    while not is_so():
        assert time.monotonic() < until
        time.sleep(0.05)


def test_a_successor_takes_over_without_a_gap(spool, tmp_path, monkeypatch):
    mount, rollups, ticks = spool("ext4"), tmp_path / "rollups", tmp_path / "ticks"
    (tmp_path / "recorder.py").write_text(RECORDER)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(WAIT_S)
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        ticker = subprocess.Popen([sys.executable, "-S", "-c", TICKER, mount, ticks])
        old = subprocess.Popen([sys.executable, tmp_path / "recorder.py", mount, rollups])
        try:
            wait_until(lambda: len(recorded(rollups)) >= 3)
            beside = [sys.executable, tmp_path / "recorder.py", mount, rollups]
            refused = subprocess.run(beside, capture_output=True, text=True)
            assert "a recorder of this host writes to" in refused.stderr
            old.send_signal(signal.SIGUSR2)
            assert old.wait(WAIT_S) == 0
            name, _, pid = manager.recv(100).decode().partition("=")
            assert name == "MAINPID"
            ended = len(recorded(rollups))
            wait_until(lambda: len(recorded(rollups)) >= ended + 2)
            os.kill(int(pid), signal.SIGTERM)
            wait_until(lambda: not list(rollups.glob(".minutes-*")))
        finally:
            ticker.kill()
            ticker.wait()
            old.kill()
            old.wait()
    rows = recorded(rollups)[1:]  # the first one may hold two seconds, as the recorder starts
    made = Counter(int(float(line)) for line in ticks.read_text().split())
    seconds = [row["minute_s"] for row in rows]
    assert seconds == list(range(seconds[0], seconds[0] + len(rows)))
    assert len({row["recorder_id"] for row in rows}) == 2
    border = next(
        i for i in range(1, len(rows)) if rows[i]["recorder_id"] != rows[0]["recorder_id"]
    )
    assert all(row["recorder_id"] == rows[border]["recorder_id"] for row in rows[border:])
    for row in rows[border - 1 : border + 1]:
        assert abs(row["covered_ns"] - 10**9) < 10**6
        assert row["calls"] == made[row["minute_s"]]
        assert row["lost"] == 0
