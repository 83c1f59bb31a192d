"""Our run queue and blocked time against the kernel's own accounting of the same calls.

The kernel counts a thread's wait for a CPU (sched_info.run_delay) and its waits for block I/O
(delay accounting) by itself, in nanoseconds, whether or not anybody traces.
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from clocks import alike, in_one_of_three
from live import COMM, ask, beside, workload

pytestmark = [pytest.mark.root, in_one_of_three]


@contextmanager
def hogs(each: int) -> Iterator[None]:
    """Programs that want every CPU, `each` times over."""
    hog = [sys.executable, "-S", "-c", "while True: pass"]
    running = [subprocess.Popen(hog) for _ in range(each * (os.cpu_count() or 1))]
    try:
        yield
    finally:
        for process in running:
            process.kill()
            process.wait()


# Before and after each call the thread reads its own counters: only the calls' shares are summed.
RUN_DELAY = """
import os, sys
mine = os.open("/proc/thread-self/schedstat", os.O_RDONLY)
def run_delay():
    return int(os.pread(mine, 64, 0).split()[1])
fd = os.open(sys.argv[1] + "/box", os.O_CREAT | os.O_WRONLY)
total = calls = 0
while total < 50_000_000 and calls < 20_000: # a fast disk makes short waits: then more of them
    os.write(fd, b"x" * 5000)
    before = run_delay()
    os.fsync(fd)
    total += run_delay() - before
    calls += 1
with open(sys.argv[2], "w") as out:
    out.write(f"{calls} {total}")
"""


def test_run_queue_time_is_the_run_delay_of_the_kernel(spool, require, tmp_path):
    if not Path("/proc/self/schedstat").exists():
        require("schedstat", reason="this kernel has no CONFIG_SCHED_INFO")
    mount, said = spool("ext4"), tmp_path / "said"
    command = workload(tmp_path, RUN_DELAY, mount, said).split()
    with hogs(2):
        trace = beside(mount, tmp_path, command)
    [(n, ours, waits)] = ask(
        trace,
        "SELECT count(*), sum(runq_ns + preempted_ns), (SELECT count(*) FROM segments JOIN"
        " syscalls USING (tid, seq) WHERE syscall = 'fsync' AND state != 'blocked')"
        f" FROM syscalls WHERE syscall = 'fsync' AND comm = '{COMM}'",
    )
    calls, theirs = map(int, said.read_text().split())
    assert n == calls
    assert theirs >= 50_000_000
    # The kernel's wait begins when the thread is queued, ours when it is woken: some microseconds
    # before, and an interrupt may lie between. A preemption between the two readings, but outside
    # the call, is the kernel's alone: a slice of some ms, seldom.
    alike("run delay", theirs, ours, rel=0.05, least=waits * 20_000)


# The kernel's running time of a thread is by the scheduler's clock, which stands still while the
# host of a virtual machine has the CPU.
RUNNING = """
import os, sys, time
mine = os.open("/proc/thread-self/schedstat", os.O_RDONLY)
def running():
    return int(os.pread(mine, 64, 0).split()[0])
fd = os.open(sys.argv[1] + "/box", os.O_CREAT | os.O_WRONLY)
data = bytes(4 << 20) # calls long against what it takes to ask
total = calls = 0
end = time.monotonic() + 5
while time.monotonic() < end:
    before = running()
    os.pwrite(fd, data, 0)
    total += running() - before
    calls += 1
with open(sys.argv[2], "w") as out:
    out.write(f"{calls} {total}")
"""


def steal_ns() -> int:
    """Return what the host has taken from all CPUs so far, as the kernel tells everybody."""
    ticks = int(Path("/proc/stat").read_text().split()[8])
    return ticks * 1_000_000_000 // os.sysconf("SC_CLK_TCK")


def test_what_the_host_takes_is_not_the_running_time_of_the_kernel(spool, require, tmp_path):
    if not Path("/proc/self/schedstat").exists():
        require("schedstat", reason="this kernel has no CONFIG_SCHED_INFO")
    mount, said = spool("ext4"), tmp_path / "said"
    before = steal_ns()
    with hogs(1):
        trace = beside(mount, tmp_path, workload(tmp_path, RUNNING, mount, said).split())
    taken = steal_ns() - before
    [(n, on_cpu, stolen, wrong)] = ask(
        trace,
        "SELECT count(*), sum(oncpu_ns), sum(stolen_ns),"
        " count(*) FILTER (stolen_ns NOT BETWEEN 0 AND oncpu_ns)"
        f" FROM syscalls WHERE syscall = 'pwrite64' AND comm = '{COMM}'",
    )
    if stolen is None:
        require("steal", reason="this kernel has no CONFIG_PARAVIRT_TIME_ACCOUNTING")
    calls, running = map(int, said.read_text().split())
    assert (n, wrong) == (calls, 0)
    # Of a theft that ends after the last tick in a call the kernel tells the reader at once, and
    # our programs with the next tick.
    alike("running time", running, on_cpu - stolen, rel=0.05, least=calls * 20_000)
    # How much of that hit these calls only the running time above tells: others were robbed, too.
    assert stolen <= taken + 20_000_000 * (os.cpu_count() or 1)


# The kernel charges block I/O from the switch-out to the waking of a thread in io_schedule(), and
# tells it in ticks. Since 6.12 a sleeper of the fair class may be dequeued late, by another thread:
# __block_task() then starts the wait of `current`, that other one, and the sleeper's end adds the
# time since an older start, or since boot (seen on 6.18 beside busy programs). The real-time
# classes are dequeued at once.
# Long waits, beside others: the kernel's ends when the thread is put on a run queue, ours when
# it is woken, and an interrupt to an idle CPU may lie between (30 us of each, when this was tried).
BLKIO = """
import mmap, os, sys
SIZE, ALL, TICK_NS = 4 << 20, 200 << 20, 10**9 // os.sysconf("SC_CLK_TCK")
os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
fd = os.open(sys.argv[1] + "/box", os.O_RDONLY | os.O_DIRECT)
mine = os.open("/proc/thread-self/stat", os.O_RDONLY)
page = mmap.mmap(-1, SIZE)
def blkio_ns():
    return int(os.pread(mine, 4096, 0).rpartition(b")")[2].split()[39]) * TICK_NS
before, calls = blkio_ns(), 0
while blkio_ns() - before < 500_000_000 and calls < 20_000: # more of them on a fast disk
    os.preadv(fd, [page], calls * SIZE % ALL)
    calls += 1
with open(sys.argv[2], "w") as out:
    print(calls, blkio_ns() - before, file=out)
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
    with hogs(1):
        trace = beside(mount, tmp_path, workload(tmp_path, BLKIO, mount, said).split())
    [(n, ours)] = ask(
        trace,
        "SELECT count(DISTINCT c.seq), sum(s.dur_ns) FROM syscalls c LEFT JOIN segments s"
        " ON s.tid = c.tid AND s.seq = c.seq AND state = 'blocked' AND stack_id IN"
        " (SELECT stack_id FROM stacks WHERE symbol LIKE 'io_schedule%')"
        f" WHERE syscall LIKE 'preadv%' AND comm = '{COMM}'",
    )
    calls, theirs = map(int, said.read_text().split())
    assert n == calls
    assert theirs >= 500_000_000
    alike("block I/O", theirs, ours, rel=0.05)
