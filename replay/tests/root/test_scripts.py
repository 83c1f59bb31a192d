"""Shell scripts: each step reads the output of the one before, and only that orders them."""

from pathlib import Path

import pytest

from spoolscope.replay.run import replay
from spoolscope.tracers.session import Request, record

pytestmark = [pytest.mark.root, pytest.mark.steady]
FILESYSTEMS = ("ext4", "xfs", "btrfs")
# ACLs of directories: no descriptor shows the mode that they set.
MOST_SKIPPED = 0.001


def test_scripts_are_replayed_to_the_same_results_and_tree(spool, tmp_path, require):
    for name in FILESYSTEMS:
        require(name)
    mount = spool("ext4")
    command = ["bash", str(Path(__file__).with_name("scripts.sh")), str(mount)]
    done = record(Request([mount], tmp_path / "trace", command=command, stdout_to_stderr=True))
    assert done.command_status == 0
    for row in replay(done.trace, list(FILESYSTEMS), tmp_path / "out", pace="afap"):
        told = (Path(row["run"]) / "divergences.json").read_text()
        assert row["syscalls"] > 5_000
        assert row["syscalls"] - row["executed"] <= MOST_SKIPPED * row["syscalls"], told
        assert row["divergent"] == 0, told
        assert row["final_state"]["mismatched"] == 0, row["final_state"]
