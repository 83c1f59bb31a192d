"""Jobs wait for their busy process, or are handed on: with a disk whose flushes take 100 ms."""

import os
import subprocess

import pyarrow.parquet as pq
import pytest

from spoolscope.replay.run import replay

pytestmark = [pytest.mark.root, pytest.mark.steady]
MS = 1_000_000
JOBS, APART_MS, FLUSH_MS = 6, 30, 100


def test_a_pool_has_no_work_wait_for_its_own_process(script, slow_spool, tmp_path):
    """Jobs come every 30 ms and take 100 ms: the sixth begins 350 ms late, or with a pool on time.

    The disk reports how long flushes took.
    """
    mount, disk = slow_spool("ext4")
    for number in range(JOBS):
        at_ms, name = 50 + APART_MS * number, f"m{number}"
        given = {"base": 0, "fd": 3, "ino": 50 + number}
        script.call(10, at_ms, "openat", name, ret=3, flags=os.O_CREAT | os.O_WRONLY, mode=0o600,
                    ino=50 + number)  # fmt: skip
        script.call(10, at_ms + 0.2, "write", name, ret=10, size=10, offset=0, **given)
        script.call(10, at_ms + 0.4, "fsync", name, **given)
        script.call(10, at_ms + 0.6, "close", fd=3)
    trace, late, waited = script.write(tmp_path / "trace"), {}, {}
    for workers in ("own", "pool"):
        place = mount / workers
        place.mkdir()
        subprocess.run(["sync", "-f", mount], check=True)
        disk.delay("flush", FLUSH_MS * MS)
        known, out = len(disk.delayed()), tmp_path / workers
        (row,) = replay(trace, [f"dir:{place}"], out, workers=workers)
        disk.clear()
        assert row["divergent"] == 0
        made = pq.read_table(next(out.glob("*-r1")) / "outcomes.parquet").to_pylist()
        opens = {one["call"]: one for one in made if one["call"] is not None}
        last = opens[4 * (JOBS - 1)]
        late[workers] = last["issue_ns"] - (50 + APART_MS * (JOBS - 1)) * MS
        assert last["late_by_target_ns"] + last["late_by_machine_ns"] == late[workers]
        waited[workers] = sum(one.end_ns - one.begin_ns for one in disk.delayed()[known:])
    assert waited["own"] >= (JOBS - 1) * FLUSH_MS * MS
    assert late["own"] >= (JOBS - 1) * (FLUSH_MS - APART_MS) * MS
    assert last["late_by_target_ns"] == 0
    assert late["pool"] < FLUSH_MS * MS  # as far as the machine lets it
