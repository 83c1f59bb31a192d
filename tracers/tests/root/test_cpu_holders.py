"""The task that had the CPU a call waited for, compared with ftrace's events of all switches."""

import os
import re
import sys
import time
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from clocks import alike, compares_times
from recordings import ask, recorded

pytestmark = [pytest.mark.root, pytest.mark.steady]

TRACEFS = Path("/sys/kernel/tracing")
VICTIM = "spsc-victim"
MS = 1_000_000

# A real-time process takes the victim's CPU for 10 ms at a time, until it has done this often
# enough while the victim was in a call, which it nearly always is.
PROGRAM = f"""
import os, sys, time
os.sched_setaffinity(0, {{min(os.sched_getaffinity(0))}})
if not (hog := os.fork()):
    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(10))
    for _ in range(60):
        time.sleep(0.02)
        until = time.monotonic_ns() + {10 * MS}
        while time.monotonic_ns() < until:
            pass
    os._exit(0)
with open("/proc/self/comm", "w") as comm:
    comm.write("{VICTIM}")
fd, data = os.open(sys.argv[1] + "/box", os.O_CREAT | os.O_RDWR), bytes(1 << 20)
while not os.waitpid(hog, os.WNOHANG)[0]:
    os.pwrite(fd, data, 0)
with open(sys.argv[2], "w") as said:
    said.write(str(hog))
"""
EVENT = re.compile(r"\[(\d+)\] \S+ +(\d+)\.(\d{6}): sched_(switch|waking): (.*)")
SWITCH = re.compile(r"prev_pid=(\d+) .*prev_state=(\S+) ==> .*next_pid=(\d+)")


@contextmanager
def ftrace(require) -> Iterator[Path]:
    """Record all switches of the machine and the victim's wakeups, in a separate buffer."""
    if not (TRACEFS / "instances").is_dir():
        require("tracefs", reason=f"no tracefs at {TRACEFS}")
    ours = TRACEFS / "instances" / f"spoolscope-test-{os.getpid()}"
    ours.mkdir()
    try:
        (ours / "trace_clock").write_text("mono")
        (ours / "buffer_size_kb").write_text("65536")
        (ours / "events/sched/sched_waking/filter").write_text(f'comm == "{VICTIM}"')
        for event in ("sched_switch", "sched_waking"):
            (ours / f"events/sched/{event}/enable").write_text("1")
        yield ours
    finally:
        ours.rmdir()


class Switches:
    """Content of ftrace's buffer: turns of tasks on CPUs, and times of leaving and waking."""

    def __init__(self, text: str) -> None:
        self.turns = defaultdict(list)  # CPU -> (until ns, tid), in order
        self.left = defaultdict(list)  # tid -> (ns, runnable)
        self.came = defaultdict(list)  # tid -> (ns, CPU)
        self.wakings = []
        for cpu, s, us, event, told in EVENT.findall(text):
            at = int(s) * 1000 * MS + int(us) * 1000
            if event == "waking":
                self.wakings.append(at)
                continue
            prev, state, then = SWITCH.search(told).groups()
            self.turns[cpu].append((at, int(prev)))
            self.left[int(prev)].append((at, state.startswith("R")))
            self.came[int(then)].append((at, cpu))
        for events in (*self.turns.values(), *self.left.values(), self.wakings):
            events.sort()

    def waits(self, tid: int) -> Iterator[tuple[int, int, dict[int, int], int]]:
        """Yield a thread's waits for a CPU: since, until, {tid: ns on the CPU}, longest turn."""
        for until, cpu in self.came[tid]:
            at = bisect_left(self.left[tid], (until,)) - 1
            if at < 0:
                continue
            since, runnable = self.left[tid][at]
            if not runnable:
                at = bisect_left(self.wakings, since)
                since = self.wakings[at] if at < len(self.wakings) else until
            if since >= until:
                continue
            had, longest, begin = defaultdict(int), 0, since
            turns = self.turns[cpu]
            for end, who in turns[bisect_right(turns, (since, 1 << 40)) :]:
                if end > until:
                    break
                if who not in (0, tid):
                    had[who] += end - begin
                    longest = max(longest, end - begin)
                begin = end
            yield since, until, had, longest


@compares_times
def test_the_holder_of_a_cpu_is_the_one_that_ran_there(spool, require, tmp_path):
    mount, said = spool("ext4"), tmp_path / "hog"
    command = [sys.executable, "-S", "-c", PROGRAM, str(mount), str(said)]
    with ftrace(require) as events:
        trace = recorded(mount, tmp_path, command)
        shift = time.time_ns() - time.monotonic_ns()
        switches = Switches((events / "trace").read_text())
    hog = int(said.read_text())
    rows = ask(
        trace,
        "SELECT tid, ts_ns, dur_ns, held_pid, held_tid, held_comm, held_after_ns, held_ns"
        " FROM segments JOIN (SELECT DISTINCT pid FROM syscalls WHERE syscall = 'pwrite64')"
        f" USING (pid) WHERE state != 'blocked' AND dur_ns > {5 * MS}",
    )
    theirs = {wait[1]: wait for wait in switches.waits(rows[0][0])}
    ends = sorted(theirs)
    compared = ours_ns = theirs_ns = 0
    for _, ts, dur, pid, tid, comm, after, held in rows:
        end = ts + dur - shift
        at = bisect_left(ends, end)
        until = min(ends[max(0, at - 1) : at + 1], key=lambda one: abs(one - end))
        since, _, had, longest = theirs[until]
        if abs(until - end) > MS or abs(until - since - dur) > MS:
            continue  # one of the two missed a switch, which happens
        compared += 1
        assert 0 <= after <= after + held <= dur
        assert comm
        # If two had it equally long, either may be named.
        assert had[tid] >= longest - MS, (had, tid)
        if tid == hog:
            assert pid == hog
            ours_ns += held
            theirs_ns += had[hog]
    assert compared >= 0.95 * len(rows)
    assert theirs_ns > 200 * MS, "the hog met too few calls"
    alike("hog", theirs_ns, ours_ns, rel=0.03)
