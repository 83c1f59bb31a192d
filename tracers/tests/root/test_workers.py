"""Workers and disks below a spool, compared with ftrace and with the program's writes."""

import ctypes
import fcntl
import os
import re
import struct
import subprocess
import time
from contextlib import suppress
from pathlib import Path

import pytest
from journals import device_of, ftrace
from recordings import ask, record_writers

pytestmark = [pytest.mark.root, pytest.mark.steady]
BLKPG, ADD_PARTITION, DEL_PARTITION = 0x1269, 1, 2  # linux/blkpg.h
FUNCTIONS = ("loop_workfn", "loop_rootcg_workfn", "wb_workfn", "ext4_end_io_rsv_work")
WORK = re.compile(r"-(\d+)\s+\[\d+\].* (\d+\.\d+): workqueue_execute_(start|end):")


def spans(lines: list[str]) -> dict[int, list[tuple[float, float]]]:
    """Return begin and end of each work item by thread, in ns of CLOCK_MONOTONIC, by ftrace."""
    begun: dict[int, float] = {}
    found: dict[int, list[tuple[float, float]]] = {}
    for line in lines:
        if match := WORK.search(line):
            tid, ns = int(match[1]), float(match[2]) * 1e9
            if match[3] == "start":
                begun[tid] = ns
            elif tid in begun:
                found.setdefault(tid, []).append((begun.pop(tid), ns))
    return found


@pytest.fixture
def on_disk(require, tmp_path):
    """Require images on a disk: those in memory have none below, and their workers never wait."""
    source = subprocess.run(
        ["findmnt", "-no", "SOURCE", "-T", tmp_path], capture_output=True, text=True, check=True
    ).stdout.strip()
    if not source.startswith("/dev/"):
        require("disk", reason=f"{tmp_path} is on {source}, no disk: give --basetemp on one")


@pytest.mark.usefixtures("on_disk")
def test_a_worker_is_watched_only_while_it_works_for_the_spool(spool, tmp_path):
    mount = spool("ext4")
    table = [line.split() for line in Path("/proc/kallsyms").read_text().splitlines()]
    addresses = [f"function == 0x{row[0]}" for row in table if row[2] in FUNCTIONS]
    condition = " || ".join(addresses)
    events = {f"workqueue/workqueue_execute_{what}": condition for what in ("start", "end")}
    with ftrace(events) as lines:
        trace = record_writers(mount, tmp_path, 30, 2, 4096)
        shift = time.clock_gettime_ns(time.CLOCK_REALTIME) - time.monotonic_ns()
    worked = spans(lines)
    segments = ask(
        trace,
        "SELECT s.tid, s.ts_ns, s.dur_ns FROM segments s JOIN threads t USING (tid)"
        " WHERE s.seq IS NULL AND t.kind = 'kernel' AND t.comm LIKE 'kworker%'"
        " AND s.state = 'blocked'",
    )
    assert len(segments) > 30
    slack = 50_000  # ftrace rounds to 1 us; the clocks are not read at the same time
    strangers = [
        (tid, begin, length)
        for tid, begin, length in segments
        if not any(
            a - slack <= begin - shift and begin - shift + length <= b + slack
            for a, b in worked.get(tid, [])
        )
    ]
    assert strangers == []


def test_one_writer_of_xfs_pushes_its_log_once_per_fsync(spool, tmp_path):
    trace = record_writers(spool("xfs"), tmp_path, 40, 1, 4096)
    pushes = ask(
        trace,
        "SELECT e.id, e.dur_ns, t.kind FROM journal_events e JOIN threads t USING (tid)"
        " WHERE event = 'cil_push' ORDER BY e.ts_ns",
    )
    assert 40 <= len(pushes) <= 45
    sequence = [row[0] for row in pushes]
    assert sequence == list(range(sequence[0], sequence[0] + len(sequence)))
    assert {row[2] for row in pushes} == {"kernel"}
    assert all(length is not None and length > 0 for _, length, _ in pushes)


@pytest.mark.usefixtures("on_disk")
def test_requests_of_a_loop_device_lead_to_the_disk_below(spool, tmp_path):
    mount = spool("ext4")
    name, dev = device_of(mount)
    trace = record_writers(mount, tmp_path, 20, 1, 65536)
    [(below, parents, submitters, written)] = ask(
        trace,
        f"""SELECT count(DISTINCT b.dev), list(DISTINCT parent_dev), bool_and(t.kind = 'kernel'),
                   sum(bytes) FILTER (op = 'write')
            FROM block_ios b JOIN threads t USING (tid)
            WHERE b.dev != {dev} AND parent_dev IS NOT NULL""",
    )
    assert (below, parents, submitters) == (1, [dev], True), name
    assert written >= 20 * 65536  # data synced on the loop device went to the disk
    # A flush, a write of no bytes, is done by another request: it is never issued to the driver.
    [(queue, device, writes)] = ask(
        trace,
        "SELECT min(queue_ns), min(device_ns), min(device_ns) FILTER (bytes > 0) FROM block_ios",
    )
    assert (queue >= 0, device >= 0, writes > 0) == (True, True, True)


def partition(disk: Path, what: int, begin: int = 0, length: int = 0) -> None:
    """Add or remove the first partition of a disk, without a partition table."""
    part = ctypes.create_string_buffer(struct.pack("=qqi128s4x", begin, length, 1, b""))
    handle = os.open(disk, os.O_RDWR)
    try:
        arg = struct.pack("=iii4xQ", what, 0, len(part) - 1, ctypes.addressof(part))
        fcntl.ioctl(handle, BLKPG, arg)
    finally:
        os.close(handle)


def test_requests_of_a_partition_name_it(require, tmp_path):
    require("bpf")
    require("ext4")
    image, mount = tmp_path / "p.img", tmp_path / "m"
    with image.open("wb") as file:
        file.truncate(256 << 20)
    found = subprocess.run(
        ["losetup", "--find", "--show", image], capture_output=True, text=True, check=True
    )
    disk = Path(found.stdout.strip())
    begin = 1 << 20
    try:
        with suppress(OSError):
            partition(disk, DEL_PARTITION)  # a loop device keeps partitions of its last file
        partition(disk, ADD_PARTITION, begin, 200 << 20)
        subprocess.run(["mkfs.ext4", "-q", "-F", f"{disk}p1"], check=True)
        mount.mkdir()
        subprocess.run(["mount", f"{disk}p1", mount], check=True)
        try:
            _, dev = device_of(mount)
            trace = record_writers(mount, tmp_path, 20, 1, 65536)
        finally:
            subprocess.run(["umount", mount], check=True)
            partition(disk, DEL_PARTITION)
    finally:
        subprocess.run(["losetup", "--detach", disk], check=True)
    numbers = disk.stat().st_rdev
    own = os.major(numbers) << 20 | os.minor(numbers)
    rows = ask(
        trace,
        f"SELECT parent_dev, sector - parent_sector FROM block_ios WHERE dev = {own}"
        " AND op = 'write'",
    )
    named = [row for row in rows if row[0] is not None]
    assert set(named) == {(dev, begin // 512)}
    # A bio that is split after its remap has no parent.
    assert len(named) >= 0.9 * len(rows) > 0
