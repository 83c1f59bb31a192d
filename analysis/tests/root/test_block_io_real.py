"""Block requests of a real recording, against the device's own counters and the block tracer."""

import fcntl
import subprocess
import sys
from pathlib import Path

import pytest

from spoolscope.analysis.block_io import AWAITED, DATA
from spoolscope.analysis.study import study
from spoolscope.tracers.session import Request, record

pytestmark = [pytest.mark.root, pytest.mark.steady]

N, SECTOR = 60, 512
WORK = f"""
import os, sys
os.chdir(sys.argv[1])
for i in range({N}):
    fd = os.open(str(i), os.O_WRONLY | os.O_CREAT, 0o600)
    os.write(fd, b"x" * 4096 * 5)
    os.fsync(fd)
    os.close(fd)
"""


def written(disk: str) -> tuple[int, int]:
    """Return the number of completed writes of a disk, and their bytes."""
    fields = Path(f"/sys/block/{disk}/stat").read_text().split()
    return int(fields[4]), int(fields[6]) * SECTOR


@pytest.fixture
def alone(require):
    """Run one test at a time, of any checkout, as a machine has one ring buffer of block events."""
    if not list(Path("/sys/block").glob("*/trace/enable")):
        require("blk tracer", "this kernel has none (CONFIG_BLK_DEV_IO_TRACE)")
    with Path("/run/lock/spoolscope-test-blktrace").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@pytest.mark.usefixtures("alone")
def test_requests_are_those_that_the_device_counted(spool, tmp_path):
    mount = spool("ext4")
    words = ["findmnt", "-no", "SOURCE", "--mountpoint", str(mount)]
    disk = Path(subprocess.check_output(words, text=True).strip()).name
    script = tmp_path / "work.py"
    script.write_text(WORK)
    before = written(disk)
    summary = record(
        Request(
            spools=[mount], output=tmp_path / "trace", pids=[], cgroups=[], comms=[],
            command=[sys.executable, str(script), str(mount)], duration_s=None,
            keep_names=True, snapshot="none", blktrace=True,
        )
    )  # fmt: skip
    after = written(disk)
    found = study(summary.trace).block_io
    writes = [one for one in found.top if one.bytes and one.kind.startswith(("data", "metadata"))]
    total = sum(one.bytes for one in writes)
    print(disk, before, after, found.written_bytes, found.stages)
    # Only the device counts requests in flight at the begin or end of the recording.
    assert 0 <= after[1] - before[1] - total <= 0.05 * total
    assert found.call_bytes == N * 20_480
    assert found.written_bytes[DATA] == pytest.approx(N * 20_480, rel=0.05)
    assert found.written_bytes[AWAITED] >= 2 * 4096 * N
    by_tracer = [one for one in found.stages if one.what.startswith("write")]
    assert sum(one.n for one in by_tracer) == pytest.approx(sum(one.n for one in writes), rel=0.05)
    at_device = sum(one.parts["device_ns"] for one in by_tracer)
    assert at_device == pytest.approx(sum(one.device_ns for one in writes), rel=0.1)
