"""spoolscope top while programs with known calls run."""

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from subprocess import PIPE

import pytest
from journals import device_of, ftrace_counts
from live import COMM, SYNCERS, workload

pytestmark = pytest.mark.root


@pytest.mark.times
@pytest.mark.trials(1, least=1)
def test_intervals_add_up_to_what_the_programs_did(spool, tmp_path):
    mount = spool("ext4")
    _, dev = device_of(mount)
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    command = [sys.executable, "-m", "spoolscope.cli.main", "top", "--deep", "--json", "-i", "4s"]
    environment = os.environ | {"TMPDIR": str(temporary)}
    with subprocess.Popen(
        [*command, "--spool", mount], stdout=PIPE, stderr=PIPE, text=True, env=environment
    ) as process:
        try:
            first = process.stdout.readline()
            with ftrace_counts({"jbd2/jbd2_start_commit": f"dev == {dev}"}) as counted:
                said = subprocess.run(
                    workload(tmp_path, SYNCERS, mount, 311, 23, 7).split(),
                    capture_output=True,
                    text=True,
                    check=True,
                ).stdout
        finally:
            process.send_signal(signal.SIGINT)
            rest, warned = process.communicate(timeout=60)
    assert "were skipped" not in warned, "it has not kept up"
    intervals = [json.loads(line) for line in [first, *rest.splitlines()]]
    # 341 fsyncs take 6.8 s at least: more than one interval.
    told = dict(tuple(map(int, line.split())) for line in said.splitlines())
    wrong = [] if process.returncode == 0 else [process.returncode, warned]
    wrong += [*temporary.iterdir(), *_wrong(intervals, told, counted["jbd2/jbd2_start_commit"])]
    # The numbers add up, however much CPU time the host took.
    if wrong:
        pytest.fail(f"{wrong}")


def _wrong(intervals: list, told: dict[int, int], started: int) -> Iterator[tuple]:
    """Yield the differences to the numbers of the programs and of the kernel."""
    if sum(any(p["comm"] == COMM for p in i["processes"]) for i in intervals) < 2:
        yield "one interval", len(intervals)
    calls, commits = Counter(), Counter()
    for interval in intervals:
        if interval["lost"]:
            yield "lost", interval["lost"]
        for found in interval["processes"]:
            if sum(found["causes"].values()) != found["time_ns"]:
                yield "causes", found
            if found["blocked_ns"] > found["time_ns"]:
                yield "blocked", found
            calls[found["pid"]] += found["calls"]
            commits[found["pid"]] += found["commits"]
    # A commit that runs at a border between intervals is in neither.
    borders = len(intervals) - 1
    for pid, n in told.items():
        if calls[pid] != 2 * n + 2:  # open, close, and a write and an fsync each
            yield "calls", n, calls[pid]
        if not n - borders <= commits[pid] <= n:
            yield "commits", n, commits[pid]
    if started < sum(told.values()):
        yield "fsyncs", told, started
    if not started - borders <= (shown := sum(i["commits"] for i in intervals)) <= started:
        yield "all commits", started, shown


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
    assert shown.count("COMM            UNIT") in (2, 3)
    assert not list(Path(tmp_path).glob("spoolscope-top-*"))
