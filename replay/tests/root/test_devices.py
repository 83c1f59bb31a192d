"""Device nodes are replaced by sockets, and only calls that need the device are left out."""

import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from spoolscope.replay.run import replay
from spoolscope.tracers.session import Request, record

pytestmark = [pytest.mark.root, pytest.mark.steady]
PROGRAM = Path(__file__).with_name("devices.py")


def names_in(spool: Path) -> int:
    found = subprocess.check_output(["find", spool, "-printf", "x"])
    return len(found) - 1  # lost+found is not compared


def test_what_needs_a_device_is_left_out_and_all_else_is_done(spool, tmp_path):
    mount = spool("ext4")
    before = mount / "before"
    before.mkdir()
    os.mknod(before / "loop", stat.S_IFBLK | 0o644, os.makedev(7, 99))
    os.mknod(before / "white", stat.S_IFCHR, 0)
    os.mknod(before / "tty", stat.S_IFCHR | 0o600, os.makedev(5, 0))
    said = tmp_path / "said"
    work = f"cd {mount} && {sys.executable} -S {PROGRAM} > {said}"
    done = record(Request([mount], tmp_path / "trace", command=["sh", "-c", work]))
    assert done.command_status == 0
    (row,) = replay(done.trace, ["ext4"], tmp_path / "out", pace="afap")
    assert row["divergent"] == 0, (Path(row["run"]) / "divergences.json").read_text()
    assert row["certificate"]["calls"]["skipped_for"] == json.loads(said.read_text())
    assert row["stand_ins"] == 3
    # All names are compared, those of devices, too.
    assert row["final_state"]["mismatched"] == 0, row["final_state"]
    assert row["final_state"]["checked"] == names_in(mount)
    assert row["listings"]["compared"] == 2
