"""A disk that was full, read-only or broken: calls that failed for that are not repeated."""

import subprocess
import sys
from pathlib import Path

import pytest

from spoolscope.replay.run import replay
from spoolscope.tracers.session import Request, record
from spoolscope.traces.trace import Trace

pytestmark = [pytest.mark.root, pytest.mark.steady]
PROGRAM = Path(__file__).with_name("lacking.py")
SIZE, INODES = 16 << 20, 64


@pytest.fixture
def small(tmp_path, require):
    """Return the image of a small ext4 and its mount point."""
    require("bpf")
    require("ext4")
    image, mount = tmp_path / "small.img", tmp_path / "small"
    with image.open("wb") as file:
        file.truncate(SIZE)
    subprocess.run(["mkfs.ext4", "-q", "-F", "-N", str(INODES), "-m", "0", image], check=True)
    mount.mkdir()
    subprocess.run(["mount", "-o", "loop,noatime", image, mount], check=True)
    yield image, mount
    subprocess.run(["umount", mount], check=True)


@pytest.mark.parametrize("fstype", ["ext4", "xfs"])
def test_what_failed_for_the_recorded_machine_is_skipped(fstype, small, tmp_path, require):
    require(fstype)
    image, mount = small
    said = tmp_path / "said"
    work = f"{sys.executable} -S {PROGRAM} {mount} {image} > {said}"
    done = record(Request([mount], tmp_path / "trace", command=["sh", "-c", work]))
    assert done.command_status == 0
    broken, used_up = map(int, said.read_text().split())
    (row,) = replay(done.trace, [fstype], tmp_path / "out", pace="afap")
    skipped = row["certificate"]["calls"]["skipped_for"]
    assert skipped == {"used_up": used_up, "broken": broken}
    # mount(8) makes the spool read-only and writable again, by mount(2) or by newer calls.
    mounts = Trace.open(done.trace).table("syscalls").column("syscall").to_pylist().count("mount")
    assert mounts <= 2
    assert row["executed"] == row["syscalls"] - used_up - broken - mounts > 100
    assert row["divergent"] == 0, (Path(row["run"]) / "divergences.json").read_text()
    assert row["final_state"]["mismatched"] == 0, row["final_state"]
