"""spoolscope top while programs of known deeds run."""

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
from journals import device_of, ftrace_counts
from live import COMM, SYNCERS, workload

pytestmark = pytest.mark.root


def test_intervals_add_up_to_what_the_programs_did(spool, tmp_path):
    mount = spool("ext4")
    _, dev = device_of(mount)
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    command = [sys.executable, "-m", "spoolscope.cli.main", "top", "--json", "-i", "2500ms"]
    environment = os.environ | {"TMPDIR": str(temporary)}
    with subprocess.Popen(
        [*command, "--spool", mount], stdout=subprocess.PIPE, text=True, env=environment
    ) as process:
        try:
            first = process.stdout.readline()
            with ftrace_counts({"jbd2/jbd2_start_commit": f"dev == {dev}"}) as counted:
                said = subprocess.run(
                    workload(tmp_path, SYNCERS, mount, 211, 23, 7).split(),
                    capture_output=True,
                    text=True,
                    check=True,
                ).stdout
        finally:
            process.send_signal(signal.SIGINT)
            rest, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    assert list(temporary.iterdir()) == []
    intervals = [json.loads(line) for line in [first, *rest.splitlines()]]
    # 241 fsyncs take 4.8 s at least: more than one interval.
    assert sum(any(p["comm"] == COMM for p in i["processes"]) for i in intervals) >= 2
    calls, commits = Counter(), Counter()
    for interval in intervals:
        assert interval["lost"] == 0
        for found in interval["processes"]:
            assert sum(found["causes"].values()) == found["time_ns"]
            assert found["blocked_ns"] <= found["time_ns"]
            calls[found["pid"]] += found["calls"]
            commits[found["pid"]] += found["commits"]
    # A commit under way at a border between intervals is in neither.
    borders = len(intervals) - 1
    for line in said.splitlines():
        pid, n = map(int, line.split())
        assert calls[pid] == 2 * n + 2  # open, close, and a write and an fsync each
        assert n - borders <= commits[pid] <= n
    started = counted["jbd2/jbd2_start_commit"]
    assert started >= 241
    assert started - borders <= sum(i["commits"] for i in intervals) <= started


def test_it_ends_by_itself_after_so_many_intervals(spool, tmp_path):
    mount = spool("ext4")
    began = time.monotonic()
    command = [sys.executable, "-m", "spoolscope.cli.main", "top", "--spool", mount]
    shown = subprocess.run(
        [*command, "-i", "1s", "-n", "2"],
        capture_output=True,
        text=True,
        env=os.environ | {"TMPDIR": str(tmp_path)},
        check=True,
    ).stdout
    assert time.monotonic() - began > 2
    assert shown.count("PID     COMM") in (2, 3)
    assert not list(Path(tmp_path).glob("spoolscope-top-*"))
