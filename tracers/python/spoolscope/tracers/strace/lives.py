"""The lives of threads in strace's files, as task records of a capture."""

from bisect import bisect_left
from collections import defaultdict, deque
from typing import Any

import numpy as np
import numpy.typing as npt

from spoolscope.tracers.lives import COMM, END, EXEC, EXIT, FORK, SEEN
from spoolscope.tracers.processes import SHARE_FILES, SHARE_FS
from spoolscope.tracers.strace import reading
from spoolscope.tracers.strace.reading import Event, Fork, Reading
from spoolscope.tracers.threads import IN_CALL
from spoolscope.traces.capture import Records
from spoolscope.traces.flat import DTYPES

Times = npt.NDArray[np.integer]
CLONE_FS, CLONE_FILES, CLONE_THREAD = 0x200, 0x400, 0x10000
UMASK = 0o022
"""Used if no call shows the umask."""
START_NS = 10**9
"""A monotonic time, here one second: times since the epoch are too large for float64."""
COMM_BYTES = 15
UNKNOWN_COMM = b"?"


class Lives:
    """Threads with their processes, names and umasks, followed in order of time.

    Args:
        read: The content of strace's files.

    Attributes:
        start_ns: Time just before the first line; all times here count from ``zero_ns``.
        tasks: Task records, in order; ``path`` of the SEEN records is still to be filled in.
        there: Threads for which no call is known that made them, with the time of their first line.
        strays: Those of them that calls made under other numbers: in a PID namespace, where strace
            prints its own numbers only with --decode-pids=pidns.
    """

    def __init__(self, read: Reading) -> None:
        self._read = read
        self.start_ns = START_NS
        self.zero_ns = read.first_ns - 1 - START_NS
        self._rows: list[Any] = []
        self._first_umask = {  # the old value that the first call of umask returned
            event.tid: event.number & 0o777
            for event in reversed(read.events)
            if event.kind == reading.UMASK
        }
        self._pid: dict[int, int] = {}
        self._comm: dict[int, bytes] = {}
        self._umask: dict[int, int] = {}
        self._made: dict[int, list[tuple[int, int]]] = defaultdict(list)
        happened: list[tuple[int, int, Fork | Event]] = [
            *((self._moment(fork), 0, fork) for fork in read.forks),
            *((event.ts_ns, 1, event) for event in read.events),
        ]
        self.there = self._there()
        for tid in sorted(self.there):
            self._begin(tid)
        self._missing: list[int] = []
        for ts_ns, _, what in sorted(happened, key=lambda item: item[:2]):
            if isinstance(what, Fork):
                self._fork(ts_ns, what)
            else:
                self._event(what)
        for tid in sorted(self._pid):
            self._row(read.last_ns, END, tid)["flags"] = IN_CALL * (tid in read.in_flight)
        self.tasks: Records = np.array(self._rows, DTYPES["task"])
        self.strays = self._strays()

    def pids(self, tid: Times, ts_ns: Times) -> Times:
        """Return the process of each thread at a time."""
        pids = tid.copy()
        for thread, made in self._made.items():
            if any(pid != thread for _, pid in made):
                rows = np.flatnonzero(tid == thread)
                at = np.searchsorted([ts for ts, _ in made], ts_ns[rows], "right") - 1
                pids[rows] = np.array([pid for _, pid in made])[np.maximum(at, 0)]
        return pids

    def _there(self) -> dict[int, int]:
        """Return the threads that existed at the start; their numbers may be reused later."""
        made: dict[int, int] = {}
        for fork in self._read.forks:
            made[fork.child] = min(fork.start_ns, made.get(fork.child, fork.start_ns))
        begins = ((tid, times[0]) for tid, times in self._read.begins.items() if tid)
        return {tid: ts_ns for tid, ts_ns in begins if tid not in made or ts_ns < made[tid]}

    def _strays(self) -> set[int]:
        """Return the threads that may be children never seen under the number that fork returned.

        Not every thread that appears late is one: it may have existed and made no call before.
        """
        strays: set[int] = set()
        missing = deque(sorted(self._missing))
        for tid, ts_ns in sorted(self.there.items(), key=lambda item: item[::-1]):
            if missing and missing[0] < ts_ns:
                missing.popleft()
                strays.add(tid)
        return strays

    def _first_after(self, fork: Fork) -> int | None:
        """Return the time of a child's first line."""
        begins = self._read.begins.get(fork.child, [])
        at = bisect_left(begins, fork.start_ns)
        return begins[at] if at < len(begins) else None

    def _moment(self, fork: Fork) -> int:
        """Return the time of a fork; a child may run before the call that made it has returned."""
        first = self._first_after(fork)
        return fork.end_ns if first is None else max(min(fork.end_ns, first - 1), fork.start_ns)

    def _begin(self, tid: int) -> None:
        """Add a thread that existed at the start; it counts as a process of its own."""
        self._pid[tid] = tid
        self._comm[tid] = self._read.comms.get(tid, UNKNOWN_COMM)
        self._umask[tid] = self._first_umask.get(tid, UMASK)
        self._made[tid].append((self.start_ns, tid))
        self._row(self._read.first_ns - 1, SEEN, tid)

    def _fork(self, ts_ns: int, fork: Fork) -> None:
        if self._first_after(fork) is None:
            self._missing.append(fork.start_ns)
            if fork.child in self._pid:  # a number of another namespace: another thread has it
                return
        parent = self._pid.get(fork.parent, fork.parent)
        pid = parent if fork.flags & CLONE_THREAD else fork.child
        self._pid[fork.child] = pid
        self._comm[fork.child] = self._comm.get(fork.parent, UNKNOWN_COMM)
        self._umask[pid] = self._umask.get(parent, UMASK)
        self._made[fork.child].append((ts_ns - self.zero_ns, pid))
        row = self._row(ts_ns, FORK, fork.child)
        row["parent_tid"], row["parent_pid"] = fork.parent, parent
        row["flags"] = SHARE_FILES * bool(fork.flags & CLONE_FILES)
        row["flags"] |= SHARE_FS * bool(fork.flags & CLONE_FS)

    def _event(self, event: Event) -> None:
        tid = event.tid
        if tid not in self._pid:
            return
        if event.kind == reading.UMASK:
            self._umask[self._pid[tid]] = event.number >> 12 & 0o777
        elif event.kind == reading.COMM:
            self._comm[tid] = event.text[:COMM_BYTES]
            self._row(event.ts_ns, COMM, tid)
        elif event.kind == reading.EXEC:
            self._comm[tid] = event.text.rpartition(b"/")[2][:COMM_BYTES] or UNKNOWN_COMM
            self._row(event.ts_ns, EXEC, tid)["path"] = self._read.strings.id(event.text)
        else:
            self._row(event.ts_ns, EXIT, tid)["exit_code"] = event.number
            del self._pid[tid]

    def _row(self, ts_ns: int, event: int, tid: int) -> Any:
        row = np.zeros(1, DTYPES["task"])[0]
        pid = self._pid[tid]
        row["ts_ns"], row["event"], row["pid"], row["tid"] = ts_ns - self.zero_ns, event, pid, tid
        row["comm"], row["umask"] = self._comm[tid], self._umask.get(pid, UMASK)
        self._rows.append(row)
        return row
