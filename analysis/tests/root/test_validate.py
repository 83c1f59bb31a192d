"""Recordings on two filesystems, one on a slow disk, against replays on equal disks."""

import json
import subprocess
import sys

import pytest

pytestmark = [pytest.mark.root, pytest.mark.steady]
MS = 1_000_000
FLUSHES, FLUSH_MS = 8, 250  # a flush of the disk below may itself take 25 ms
LOAD = """
import os, sys, time
# No other program delays it between its clock and its calls.
os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
took = 0
for k in range(int(sys.argv[2])):
    file = os.open(f"{sys.argv[1]}/m{k}", os.O_CREAT | os.O_WRONLY)
    os.write(file, b"x" * 5000)
    began = time.monotonic_ns()
    os.fsync(file)
    took += time.monotonic_ns() - began
    os.close(file)
print(took)
"""


def spoolscope(*words: object) -> str:
    command = [sys.executable, "-m", "spoolscope.cli.main", *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_ratio_that_a_slow_disk_made_is_not_replayed(spool, slow_spool, require, tmp_path):
    """Check the ratio of the recordings against the times that the programs measured."""
    require("ext4")
    require("xfs")
    slow, disk = slow_spool("xfs")
    disk.delay("flush", FLUSH_MS * MS)
    traces, saw = {}, {}
    for fstype, mount in (("ext4", spool("ext4")), ("xfs", slow)):
        traces[fstype] = tmp_path / f"{fstype}.trace"
        load = [sys.executable, "-c", LOAD, mount, FLUSHES]
        said = spoolscope("record", "--spool", mount, "-o", traces[fstype], "-q", "--", *load)
        saw[fstype] = int(said.splitlines()[0]) / FLUSHES
    disk.clear()
    assert saw["xfs"] > FLUSH_MS * MS
    words = [traces["ext4"], "--against", traces["xfs"], "--rounds", 1, "-o", tmp_path / "out"]
    found = json.loads(spoolscope("validate", *words, "-q", "--json"))
    syncs = next(one for one in found["metrics"] if one["metric"] == "sync_mean_ns")
    (ratio,) = syncs["ratios"]
    assert ratio["recorded"]["ratio"] == pytest.approx(saw["xfs"] / saw["ext4"], rel=0.1)
    assert ratio["replayed"]["ratio"] < 0.5 * ratio["recorded"]["ratio"]
    assert ratio["apart"] < -0.5
    differ = {(one["filesystem"], one["cause"]) for one in found["causes"]}
    assert any(name == "xfs" for name, _ in differ)
