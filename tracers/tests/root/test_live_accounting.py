"""The recorder's run queue and blocked time against the kernel's accounting of the same calls.

The kernel counts a thread's wait for a CPU (sched_info.run_delay) and its waits for block I/O
(delay accounting) by itself, in nanoseconds, independent of tracing.
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from clocks import alike, compares_times
from live import COMM, ask, beside, workload

pytestmark = [pytest.mark.root, compares_times]


@contextmanager
def hogs(each: int) -> Iterator[None]:
    """Run programs that keep every CPU busy, `each` for each CPU."""
    hog = [sys.executable, "-S", "-c", "while True: pass"]
    running = [subprocess.Popen(hog) for _ in range(each * (os.cpu_count() or 1))]
    try:
        yield
    finally:
        for process in running:
            process.kill()
            process.wait()


# The thread reads its own counters before and after each call; only the differences are summed.
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
    # The kernel's wait begins when the thread is queued, the recorder's when it is woken: some
    # microseconds earlier, or more with an interrupt between. A preemption between the readings
    # but outside the call counts for the kernel only: a slice of some ms, seldom.
    alike("run delay", theirs, ours, rel=0.05, least=waits * 20_000)


# The kernel measures running time by the scheduler's clock, which stops while the host of a virtual
# machine has the CPU.
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
    """Return the steal of all CPUs so far, by /proc."""
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
    # The kernel reports steal that ends after the last tick of a call to this program at once,
    # to the recorder's programs with the next tick.
    alike("running time", running, on_cpu - stolen, rel=0.05, least=calls * 20_000)
    # Steal in these calls is only part of it, as other programs were affected, too; the
    # running time above is the exact check.
    assert stolen <= taken + 20_000_000 * (os.cpu_count() or 1)


# The kernel charges block I/O from the switch-out to the wakeup of a thread in io_schedule(), and
# reports it in ticks. Since 6.12 a sleeper of the fair class may be dequeued late, by another
# thread: __block_task() then starts the wait of `current`, the other thread, and the end of the
# sleep adds the time since an older start, or since boot (seen on 6.18 beside busy programs).
# The real-time classes are dequeued at once.
# The waits are long compared with the differences: the kernel's wait ends when the thread is put on
# a run queue, the recorder's when it is woken; an interrupt to an idle CPU may lie between (30 us
# per wait in trials).
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
