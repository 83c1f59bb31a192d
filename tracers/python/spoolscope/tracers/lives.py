"""Lives of threads: the kernel reuses tids, and numbers the calls of each life from 0."""

import numpy as np
import numpy.typing as npt

from spoolscope.traces import constants
from spoolscope.traces.capture import Capture, Records

SEEN, FORK, EXEC, EXIT, END, COMM, CUT, BORDER = (
    constants.TASK_SEEN, constants.TASK_FORK, constants.TASK_EXEC, constants.TASK_EXIT,
    constants.TASK_END, constants.TASK_COMM, constants.TASK_CUT, constants.TASK_BORDER,
)  # fmt: skip

PART = 1 << 16  # as the arrays between are several times as large
Int = npt.NDArray[np.int64]
Life = npt.NDArray[np.int32]
_THREAD = np.uint64(32)


class Lives:
    """Every life of every tid, by index.

    A life begins at the fork of the tid, after its exit, or, if both records are lost, where the
    numbers of its calls begin again.

    Attributes:
        tid: Per life.
        begin_ns: Time from which on the tid means this life; 0 for the first one.
        base: Number to add to the kernel's seq so that a tid's numbers continue through its lives.
        used: Calls counted in this life, recorded or lost.
        before_ns: Time at which its last call in an earlier segment returned; 0 if there was none.
    """

    def __init__(self, capture: Capture) -> None:
        calls, tasks = capture.records["syscall"], capture.records["task"]
        tids = np.unique(np.concatenate([calls["tid"], tasks["tid"]])).astype(np.int64)
        forks, exits = tasks[tasks["event"] == FORK], tasks[tasks["event"] == EXIT]
        self._divide(
            np.concatenate([tids, forks["tid"], exits["tid"]]),
            np.concatenate([np.zeros(len(tids), np.int64), forks["ts_ns"], exits["ts_ns"] + 1]),
        )
        of_calls = self._divide_at_restarts(calls)
        self._count(capture, of_calls)
        self.of_calls = of_calls

    def _divide(self, tid: Int, begin_ns: Int) -> None:
        order = np.lexsort((begin_ns, tid))
        self.tid, self.begin_ns = tid[order].astype(np.int64), begin_ns[order].astype(np.int64)
        self._begins = np.unique(self.begin_ns)
        self._keys = self._keys_of(self.tid, self.begin_ns)

    def _divide_at_restarts(self, calls: Records) -> Life:
        """Divide lives further where seq decreases; return the life of each call."""
        of_calls = self.of(calls["tid"], calls["end_ns"])
        order = self.in_order(calls, of_calls)
        life, seq = of_calls[order], calls["seq"][order].astype(np.int64)
        falls = np.nonzero((life[1:] == life[:-1]) & (seq[1:] <= seq[:-1]))[0] + 1
        if not len(falls):
            return of_calls
        first = calls[order[falls]]
        self._divide(
            np.concatenate([self.tid, first["tid"]]),
            np.concatenate([self.begin_ns, first["end_ns"]]),
        )
        return self.of(calls["tid"], calls["end_ns"])

    def in_order(self, calls: Records, of_calls: Life) -> Int:
        """Return the order of calls by life, and in a life by the time at which they returned."""
        order = np.argsort(calls["end_ns"], kind="stable")  # almost as they were written
        life = of_calls[order]
        few = len(self.tid) <= np.iinfo(np.uint16).max  # numpy sorts numbers of 16 bits by digits
        return order[np.argsort(life.astype(np.uint16) if few else life, kind="stable")]

    def _count(self, capture: Capture, of_calls: Life) -> None:
        calls, tasks = capture.records["syscall"], capture.records["task"]
        n = len(self.tid)
        seq = calls["seq"].astype(np.int64)
        used = np.zeros(n, np.int64)
        np.maximum.at(used, of_calls, seq + 1)
        last = tasks[np.isin(tasks["event"], (EXIT, END))]
        np.maximum.at(used, self.of(last["tid"], last["ts_ns"]), last["n_calls"].astype(np.int64))
        first = np.full(n, np.iinfo(np.int64).max)
        np.minimum.at(first, of_calls, seq)
        skipped = self._skipped(tasks, first)
        earlier = self._earlier(capture, first)
        self.used = used - skipped - earlier
        first_of_tid = np.searchsorted(self.tid, self.tid)
        before = np.cumsum(self.used) - self.used
        before += np.cumsum(earlier)
        self.start = before - (before - earlier)[first_of_tid]
        self.base = self.start - skipped - earlier

    def _earlier(self, capture: Capture, first: Int) -> Int:
        """Return the number of calls in earlier segments, of each life that existed at the start.

        A border that the calls contradict belongs to a thread whose end was not recorded.
        """
        tasks, earlier = capture.records["task"], np.zeros(len(self.tid), np.int64)
        self.before_ns = earlier.copy()
        borders = tasks[tasks["event"] == BORDER]
        at_start = np.full(len(borders), capture.start_mono_ns)
        of_borders = self.of(borders["tid"], at_start)
        fits = borders["n_calls"].astype(np.int64) <= first[of_borders]
        earlier[of_borders[fits]] = borders["n_calls"][fits]
        self.before_ns[of_borders[fits]] = borders["ts_ns"][fits]
        if capture.number > 1 and not capture.meta.get("borders"):
            # The segment was cut before the borders were written: count from the first call.
            there = (self.begin_ns == 0) & (first < np.iinfo(np.int64).max)
            earlier[there] = first[there]
        return earlier

    def _skipped(self, tasks: Records, first: Int) -> Int:
        """Return the number at which a life begins whose thread took over the tid of its leader.

        In an exec a thread takes over its leader's tid; the kernel goes on counting its calls.
        """
        taken_over = np.zeros(len(self.tid), np.bool_)
        for event, sign in ((EXEC, True), (FORK, False)):
            rows = tasks[tasks["event"] == event]
            taken_over[self.of(rows["tid"], rows["ts_ns"])] = sign
        taken_over &= (self.begin_ns > 0) & (first < np.iinfo(np.int64).max)
        return np.where(taken_over, first, 0)

    def of(self, tid: npt.NDArray[np.integer], ts_ns: npt.NDArray[np.integer]) -> Life:
        """Return the life that each (tid, time) belongs to; the tids must be of this capture."""
        found = np.empty(len(tid), np.int32)
        for begin in range(0, len(tid), PART):
            part = slice(begin, begin + PART)
            keys = self._keys_of(tid[part], ts_ns[part])
            found[part] = np.searchsorted(self._keys, keys, "right") - 1
        return found

    def _keys_of(
        self, tid: npt.NDArray[np.integer], ts_ns: npt.NDArray[np.integer]
    ) -> npt.NDArray[np.uint64]:
        """Return one number for each thread and time, which grow in the order of both."""
        begun = np.searchsorted(self._begins, ts_ns.astype(np.int64), "right")
        return tid.astype(np.uint64) << _THREAD | begun.astype(np.uint64)


def continue_numbering(capture: Capture) -> Lives:
    """Renumber the calls of a capture, once, so that (tid, seq) names one call of the trace."""
    tasks = capture.records["task"]
    # Threads that ended in the prelude do not belong to this segment.
    ended = np.isin(tasks["event"], (EXIT, END)) & (tasks["ts_ns"] < capture.start_mono_ns)
    tasks["n_calls"][ended] = 0
    lives = Lives(capture)
    calls = capture.records["syscall"]
    calls["seq"] += lives.base.astype(np.uint64)[lives.of_calls]  # a negative base wraps around
    capture.records["task"] = tasks[tasks["event"] != BORDER]  # borders have no other use
    return lives
