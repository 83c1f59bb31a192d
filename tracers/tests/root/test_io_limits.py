"""Requests held back by a limit of a control group, compared with its counts and a clock."""

import os
import subprocess
import sys
from pathlib import Path
from statistics import median

import pytest
from recordings import ask, recorded

pytestmark = [pytest.mark.root, pytest.mark.steady]
WRITES, A_SECOND = 12, 5
SLOW_NS = 10**9 / A_SECOND / 2

# argv: mount, cgroup, writes; a child in the group and one outside write past the cache, one after
# the other, and the child in the group prints begin and end of each write.
WRITERS = """
import mmap, os, sys, time
mount, cgroup, n = sys.argv[1:]
page = mmap.mmap(-1, 4096)
def write(name, told):
    fd = os.open(f"{mount}/{name}", os.O_RDWR | os.O_DIRECT)
    for at in range(int(n)):
        begin = time.time_ns()
        os.pwritev(fd, [page], 4096 * at)
        if told:
            print(begin, time.time_ns(), flush=True)
    os.close(fd)
if not os.fork():
    write("free", False)
    os._exit(0)
if not os.fork():
    with open(f"{cgroup}/cgroup.procs", "w") as procs:
        procs.write(str(os.getpid()))
    write("limited", True)
    os._exit(0)
os.wait()
os.wait()
"""


def n_served(cgroup: Path, dev: int) -> int:
    """Return the writes of a group to a disk, by the group's own statistics."""
    disk = f"{os.major(dev)}:{os.minor(dev)}"
    old = cgroup / "blkio.throttle.io_serviced"
    if old.exists():
        [n] = [row.split()[2] for row in old.read_text().splitlines()
               if row.startswith(f"{disk} Write ")]  # fmt: skip
    else:
        [line] = [row for row in (cgroup / "io.stat").read_text().splitlines()
                  if row.startswith(f"{disk} ")]  # fmt: skip
        n = dict(word.split("=") for word in line.split()[1:])["wios"]
    return int(n)


def test_requests_over_a_limit_are_known_with_their_control_group(
    spool, require, io_limit, tmp_path, capfd
):
    require("bpf")
    mount = spool("ext4")
    for name in ("free", "limited"):
        (mount / name).write_bytes(bytes(4096 * WRITES))
    subprocess.run(["sync", "-f", mount], check=True)
    cgroup = io_limit(mount, "write_iops", A_SECOND)
    command = [sys.executable, "-S", "-c", WRITERS, str(mount), str(cgroup), str(WRITES)]
    trace = recorded(mount, tmp_path, command)
    writes = [tuple(map(int, line.split())) for line in capfd.readouterr().out.splitlines()]
    held = ask(trace, "SELECT ts_ns, cgroup FROM block_ios WHERE held_back ORDER BY ts_ns")

    name, dev = f"/{cgroup.name}", mount.stat().st_dev
    assert n_served(cgroup, dev) == len(writes) == WRITES
    # Writes of the group that were not held back have its thread; no others were held back.
    [(own,)] = ask(
        trace,
        "SELECT count(*) FROM block_ios b JOIN syscalls s USING (tid, seq) JOIN paths p "
        "USING (path_id) WHERE p.path = 'limited' AND NOT held_back",
    )
    assert own + len(held) == WRITES
    assert {group for _, group in held} == {name}
    # On a busy machine some writes are late, so that the limit does not hold them back.
    assert len(held) >= WRITES // 2
    waited = [(begin, at, end) for at, _ in held for begin, end in writes if begin <= at <= end]
    assert len(waited) == len({begin for begin, _, _ in waited}) == len(held)
    assert median(end - begin for begin, _, end in waited) > SLOW_NS
    # Each request is made at the end of the write that waited for it.
    assert median((end - at) / (end - begin) for begin, at, end in waited) < 0.5
    limit = {"cgroup": name, "dev": os.major(dev) << 20 | os.minor(dev), "write_iops": A_SECOND}
    assert trace.meta["io_limits"] == [limit]
