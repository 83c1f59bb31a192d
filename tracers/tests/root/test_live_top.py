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
from live import COMM, workload

pytestmark = pytest.mark.root

# argv: mount, fsyncs of each process, one after the other; each process says its pid.
SYNCERS = """
import os, sys, time
for who, n in enumerate(map(int, sys.argv[2:])):
    if not (kid := os.fork()):
        fd = os.open(f"{sys.argv[1]}/{who}", os.O_CREAT | os.O_WRONLY)
        for i in range(n):
            os.write(fd, b"x" * 5000)
            os.fsync(fd)
            time.sleep(0.02)
        os.close(fd)
        os._exit(0)
    print(kid, n, flush=True)
    os.waitpid(kid, 0)
"""


def test_intervals_add_up_to_what_the_programs_did(spool, tmp_path):
    mount = spool("ext4")
    _, dev = device_of(mount)
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    command = [sys.executable, "-m", "spoolscope.cli.main", "top", "--json", "-i", "1500ms"]
    environment = os.environ | {"TMPDIR": str(temporary)}
    with subprocess.Popen(
        [*command, "--spool", mount], stdout=subprocess.PIPE, text=True, env=environment
    ) as process:
        try:
            first = process.stdout.readline()
            with ftrace_counts({"jbd2/jbd2_start_commit": f"dev == {dev}"}) as counted:
                said = subprocess.run(
                    workload(tmp_path, SYNCERS, mount, 101, 23, 7).split(),
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
    # 131 fsyncs take 2.6 s at least: more than one interval.
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
    assert started >= 131
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
