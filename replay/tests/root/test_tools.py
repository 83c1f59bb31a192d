"""Calls of backup tools, indexers and programs with many threads get their recorded results."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from spoolscope.replay.run import replay
from spoolscope.tracers.session import Request, record

pytestmark = [pytest.mark.root, pytest.mark.steady]


def test_what_other_tools_do_is_replayed(spool, tmp_path, require):
    require("xfs")
    mounts, outside, said = [spool("ext4"), spool("xfs")], tmp_path / "outside", tmp_path / "said"
    outside.mkdir()
    words = [sys.executable, Path(__file__).with_name("tools.py"), *mounts, outside]
    work = f"{' '.join(map(str, words))} > {said}"
    done = record(Request(mounts, tmp_path / "trace", command=["sh", "-c", work]))
    assert done.command_status == 0  # every result was as expected
    (row,) = replay(done.trace, ["ext4"], tmp_path / "out", pace="afap")
    told = (Path(row["run"]) / "divergences.json").read_text()
    assert row["divergent"] == 0, told
    assert row["final_state"]["mismatched"] == 0, row["final_state"]
    skipped = row["certificate"]["calls"]["skipped_for"]
    assert skipped == json.loads(said.read_text())
    assert row["executed"] == row["syscalls"] - sum(skipped.values()) > 350


SNAPSHOTS = """
cd "$1"
mv new/1 cur/1:2,S
echo more >> cur/1:2,S
truncate -s 1 log
cat ../.snaps/one/log > /dev/null
ls -R .. > /dev/null
rm ../.snaps/two/new/1
cp cur/1:2,S new/2
echo more >> new/3
"""


def test_snapshots_of_a_btrfs_repeat_inode_numbers(spool, tmp_path):
    mount = spool("btrfs")
    for command in (
        f"btrfs -q subvolume create {mount}/box",
        f"mkdir -p {mount}/.snaps {mount}/box/new {mount}/box/cur",
        f"cp /etc/services {mount}/box/log",
        f"cp /etc/passwd {mount}/box/new/1",
        f"btrfs -q subvolume snapshot -r {mount}/box {mount}/.snaps/one",
        f"btrfs -q subvolume snapshot {mount}/box {mount}/.snaps/two",
        f"cp /etc/group {mount}/box/new/3",
    ):
        subprocess.run(command, shell=True, check=True)
    assert (mount / "box/log").stat().st_ino == (mount / ".snaps/one/log").stat().st_ino
    command = ["sh", "-euc", SNAPSHOTS, "sh", str(mount / "box")]
    done = record(Request([mount], tmp_path / "trace", command=command))
    assert done.command_status == 0
    (row,) = replay(done.trace, ["btrfs"], tmp_path / "out", pace="afap")
    told = (Path(row["run"]) / "divergences.json").read_text()
    assert row["executed"] == row["syscalls"] > 30, told
    assert row["divergent"] == 0, told
    assert row["final_state"]["mismatched"] == 0, row["final_state"]
