"""Samples of running calls, and the directory in which a lookup waits."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from spoolscope.tracers.session import Request, record
from spoolscope.traces.trace import Trace

pytestmark = [pytest.mark.root, pytest.mark.steady]

HZ = 1999
# Calls of very different cost, which spend most of their time on the CPU.
BUSY = """
import os, sys, time
spool = sys.argv[1]
os.makedirs(f"{spool}/full")
for i in range(3000):
    os.close(os.open(f"{spool}/full/{i}", os.O_CREAT | os.O_WRONLY))
fd = os.open(f"{spool}/data", os.O_CREAT | os.O_RDWR)
end = time.monotonic() + 4
while time.monotonic() < end:
    os.listdir(f"{spool}/full")
    for i in range(20):
        os.pwrite(fd, b"x" * 262144, 0)
"""


@pytest.fixture
def recorded(tmp_path):
    """Return a function that records a Python program, which gets the mount point."""

    def make(mount: Path, program: str, **options) -> Trace:
        command = [sys.executable, "-c", program, str(mount)]
        output = tmp_path / "trace"
        request = Request([mount], output, command, keep_names=True, **options)
        summary = record(request)
        assert summary.command_status == 0
        return Trace.open(summary.trace)

    return make


def ask(trace: Trace, sql: str) -> list[tuple]:
    with trace.connect() as con:
        return con.execute(sql).fetchall()


@pytest.mark.times
def test_samples_agree_with_the_exact_time_on_the_cpu(spool, recorded):
    trace = recorded(spool("ext4"), BUSY, sample_hz=HZ)
    assert trace.meta["sample_hz"] == HZ
    rows = ask(
        trace,
        "SELECT syscall, coalesce(n, 0), ns, stolen_ns FROM"
        " (SELECT syscall, sum(oncpu_ns - coalesce(stolen_ns, 0)) AS ns,"
        " coalesce(sum(stolen_ns), 0) AS stolen_ns FROM syscalls GROUP BY 1) LEFT JOIN"
        " (SELECT syscall, count(*) AS n FROM samples JOIN syscalls USING (tid, seq) GROUP BY 1)"
        " USING (syscall)",
    )
    assert {"getdents64", "pwrite64"} <= {syscall for syscall, *_ in rows}
    for syscall, n, ns, stolen_ns in rows:
        # Samples that were due while the host had the CPU occur once, at the end of that time.
        least, most = ns * HZ / 1e9, (ns + stolen_ns) * HZ / 1e9
        expected = min(max(n, least), most)
        # The tolerance is four standard deviations of a count, and the time of the programs at
        # entry and exit, in which a call is sampled but its time is not counted.
        assert abs(n - expected) <= 4 * expected**0.5 + 0.03 * expected + 4, syscall


@pytest.mark.times
def test_a_sample_shows_what_the_call_was_doing(spool, recorded):
    trace = recorded(spool("ext4"), BUSY, sample_hz=HZ)
    with_frame = (
        "SELECT count(*), count(*) FILTER (stack_id IN"
        " (SELECT stack_id FROM stacks WHERE symbol = '{frame}'))"
        " FROM samples JOIN syscalls USING (tid, seq) WHERE syscall = '{syscall}'"
    )
    for syscall, frame in (("getdents64", "iterate_dir"), ("pwrite64", "vfs_write")):
        [(n, seen)] = ask(trace, with_frame.format(syscall=syscall, frame=frame))
        assert n > 100
        assert seen >= 0.9 * n  # the rest is just entering or leaving the kernel


def test_no_samples_if_none_are_wanted(spool, recorded):
    trace = recorded(spool("ext4"), "import os, sys; os.listdir(sys.argv[1])", sample_hz=0)
    assert ask(trace, "SELECT count(*) FROM samples") == [(0,)]
    assert trace.meta["sample_hz"] == 0


# The recorder's own walk of the tree has filled the caches.
LOOK = """
import os, sys
open("/proc/sys/vm/drop_caches", "w").write("3")
for box in range(5):
    for i in range(0, 4000, 97):
        os.stat(f"{sys.argv[1]}/box{box}/cur/message-of-some-length.{i}")
"""


def test_a_cold_lookup_names_the_directory_that_is_searched(slow_spool, recorded):
    mount, disk = slow_spool("ext4")
    inodes = {}
    for box in range(5):
        directory = mount / f"box{box}/cur"
        directory.mkdir(parents=True)
        for i in range(4000):
            (directory / f"message-of-some-length.{i}").touch()
        inodes[f"box{box}/cur"] = directory.stat().st_ino
    for way in ("ro", "rw"):  # empties the journal, which keeps blocks in memory
        subprocess.run(["mount", "-o", f"remount,{way}", mount], check=True)
    disk.delay("read", 2_000_000)  # else a block may arrive before the call sleeps
    trace = recorded(mount, LOOK)
    rows = ask(
        trace,
        "SELECT p.path, d.path FROM segments s JOIN syscalls c USING (tid, seq)"
        " JOIN paths p ON p.path_id = c.path_id LEFT JOIN paths d ON d.path_id = s.dir_id"
        " WHERE s.state = 'blocked' AND c.syscall = 'newfstatat' AND s.stack_id IN"
        " (SELECT stack_id FROM stacks WHERE symbol LIKE '\\_\\_ext4_find_entry%' ESCAPE '\\')",
    )
    searched = {directory for _, directory in rows}
    assert len(rows) >= len(inodes)
    assert inodes.keys() <= searched
    # The lookup goes from the mount point to the message and nowhere else.
    for path, directory in rows:
        assert directory == "" or path.startswith(f"{directory}/")
    assert os.path.commonpath([p for p, _ in rows]) == ""
