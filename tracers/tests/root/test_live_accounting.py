"""Our run queue and blocked time against the kernel's own accounting of the same calls.

The kernel counts a thread's wait for a CPU (sched_info.run_delay) and its waits for block I/O
(delay accounting) by itself, in nanoseconds, whether or not anybody traces.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from live import COMM, ask, beside, workload

pytestmark = pytest.mark.root

# Before and after each call the thread reads its own counters: only the calls' shares are summed.
RUN_DELAY = """
import os, sys
mine = os.open("/proc/thread-self/schedstat", os.O_RDONLY)
def run_delay():
    return int(os.pread(mine, 64, 0).split()[1])
fd = os.open(sys.argv[1] + "/box", os.O_CREAT | os.O_WRONLY)
total = 0
for i in range(211):
    os.write(fd, b"x" * 5000)
    before = run_delay()
    os.fsync(fd)
    total += run_delay() - before
with open(sys.argv[2], "w") as out:
    out.write(str(total))
"""


def test_run_queue_time_is_the_run_delay_of_the_kernel(spool, require, tmp_path):
    if not Path("/proc/self/schedstat").exists():
        require("schedstat", reason="this kernel has no CONFIG_SCHED_INFO")
    mount, said = spool("ext4"), tmp_path / "said"
    command = workload(tmp_path, RUN_DELAY, mount, said).split()
    hog = [sys.executable, "-S", "-c", "while True: pass"]
    hogs = [subprocess.Popen(hog) for _ in range(2 * (os.cpu_count() or 1))]
    try:
        trace = beside(mount, tmp_path, command)
    finally:
        for hog_ in hogs:
            hog_.kill()
            hog_.wait()
    [(n, ours, waits)] = ask(
        trace,
        "SELECT count(*), sum(runq_ns + preempted_ns), (SELECT count(*) FROM segments JOIN"
        " syscalls USING (tid, seq) WHERE syscall = 'fsync' AND state != 'blocked')"
        f" FROM syscalls WHERE syscall = 'fsync' AND comm = '{COMM}'",
    )
    theirs = int(said.read_text())
    assert n == 211
    assert theirs > 20_000_000
    # The kernel's wait begins when the thread is queued, ours when it is woken: some microseconds
    # before, and an interrupt may lie between. A preemption between the two readings, but outside
    # the call, is the kernel's alone: a slice of some ms, seldom.
    assert int(ours) == pytest.approx(theirs, rel=0.05, abs=waits * 20_000)


# The kernel charges block I/O from the switch-out to the waking of a thread in io_schedule().
BLKIO = """
import os, sys
fd = os.open(sys.argv[1] + "/box", os.O_RDONLY)
os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)
for i in range(997):
    os.pread(fd, 4096, (i * 7919 % 50000) * 4096)
with open("/proc/self/stat") as stat, open(sys.argv[2], "w") as out:
    out.write(stat.read().rpartition(")")[2].split()[39])
"""


@pytest.fixture
def delay_accounting(require):
    switch = Path("/proc/sys/kernel/task_delayacct")
    if not switch.exists():
        require("task_delayacct", reason="no CONFIG_TASK_DELAY_ACCT, or before 5.14")
    before = switch.read_text()
    switch.write_text("1")
    yield
    switch.write_text(before)


@pytest.mark.usefixtures("delay_accounting")
def test_waits_for_blocks_are_the_blkio_delay_of_the_kernel(spool, tmp_path):
    mount, said = spool("ext4"), tmp_path / "said"
    with (mount / "box").open("wb") as box:
        for _ in range(200):
            box.write(bytes(1 << 20))
        os.fsync(box.fileno())
        os.posix_fadvise(box.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    trace = beside(mount, tmp_path, workload(tmp_path, BLKIO, mount, said).split())
    [(n, ours)] = ask(
        trace,
        "SELECT count(*), sum(s.dur_ns) FROM segments s JOIN syscalls c USING (tid, seq)"
        f" WHERE state = 'blocked' AND comm = '{COMM}' AND stack_id IN"
        " (SELECT stack_id FROM stacks WHERE symbol LIKE 'io_schedule%')",
    )
    tick_ns = 1e9 / os.sysconf("SC_CLK_TCK")
    theirs = int(said.read_text()) * tick_ns
    assert n > 900
    # /proc tells it in ticks of 10 ms, rounded down; what it adds at a waking is rounded to 1 us.
    assert int(ours) == pytest.approx(theirs, rel=0.05, abs=tick_ns + n * 1000)
