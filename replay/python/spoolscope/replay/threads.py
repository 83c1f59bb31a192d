"""Lives of recorded threads: the parent of each, and the life that a call belongs to."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spoolscope.replay.columns import Int, column
from spoolscope.traces.flat import NONE
from spoolscope.traces.trace import Trace

SHARE_FILES, SHARE_FS = 1, 2
_COLUMNS = (
    "tid", "pid", "parent_tid", "start_ns", "end_ns", "comm", "kind", "uid", "gid", "umask",
    "cwd_id", "shares_files", "shares_fs",
)  # fmt: skip


@dataclass(frozen=True)
class Lives:
    """Threads of a trace; a reused tid has one life per fork.

    Attributes:
        tid, pid, uid, gid, umask, cwd_id: Facts of each life; cwd_id is -1 if unknown.
        start_ns: Start since the replay's begin; 0 if alive then.
        forked: The life began after the replay's begin.
        parent: Index of the life that forked it, or NONE.
        flags: Resources shared with the parent (enum spsc_task_flags).
        comm: Its last name.
    """

    tid: Int
    pid: Int
    uid: Int
    gid: Int
    umask: Int
    cwd_id: Int
    start_ns: Int
    forked: npt.NDArray[np.bool_]
    parent: Int
    flags: Int
    comm: npt.NDArray[np.bytes_]

    @cached_property
    def _births(self) -> "Births":
        return Births(self.tid, self.start_ns)

    def find(self, tid: Int, ts_ns: Int) -> Int:
        """Return the life that each (tid, time) belongs to; -1 for unknown tids."""
        return self._births.find(tid, ts_ns)


class Births:
    """Finds the life of a tid at a moment; the time hardly grows with the number of lives."""

    def __init__(self, tid: Int, start_ns: Int) -> None:
        self._order = np.lexsort((start_ns, tid))
        self._tids, self._moments = tid[self._order], np.unique(start_ns)
        self._again = len(np.unique(tid)) < len(tid)
        # The key of a birth is its tid, and the number of moments of birth that are not after it.
        self._keys = self._key(self._tids, start_ns[self._order])

    def _key(self, tid: Int, ts_ns: Int) -> Int:
        rank = np.searchsorted(self._moments, ts_ns, "right")
        return tid * np.int64(len(self._moments) + 1) + rank

    def find(self, tid: Int, ts_ns: Int) -> Int:
        """Return the life that each (tid, time) belongs to; -1 for unknown tids."""
        if not len(self._order):
            return np.full(len(tid), -1, np.int64)
        first = np.searchsorted(self._tids, tid)
        known = self._tids[np.minimum(first, len(self._tids) - 1)] == tid
        last = first
        if self._again:
            # A time before the first life of a tid counts as part of it.
            birth = np.searchsorted(self._keys, self._key(tid, ts_ns), "right") - 1
            last = np.maximum(birth, first)
        return np.where(known, self._order[np.where(known, last, 0)], -1)


def begin_ns(trace: Trace) -> int:
    """Return the begin of the replay since the epoch: the moment that the snapshot shows."""
    return int(trace.meta.get("snapshot_ns", trace.meta["start_ns"]))


def late_ns(trace: Trace) -> int:
    """Return how long after the recording the replay begins."""
    return begin_ns(trace) - int(trace.meta["start_ns"])


def read_lives(trace: Trace) -> Lives:
    """Return the lives of all recorded threads of user space that were alive in the replay."""
    threads = trace.table("threads", _COLUMNS)
    begin = begin_ns(trace)
    lived = column(threads, "end_ns", begin + 1) > begin
    is_task = pa.compute.equal(threads["kind"].cast(pa.string()), "task")
    threads = threads.filter(pa.compute.and_(is_task, pa.array(lived)))
    rows, starts, parents = _split(threads, begin)
    threads = threads.take(pa.array(rows))
    tid, pid, forked = column(threads, "tid"), column(threads, "pid"), starts >= 0
    start_ns = np.maximum(starts, 0)
    births = Births(tid, start_ns)
    found = births.find(parents, starts - 1)
    parent = np.where(forked & (found >= 0) & (parents > 0), found, NONE)
    # A thread alive at start, or whose fork was lost, is started by the leader of its process.
    leader = births.find(pid, start_ns)
    joined = (parent == NONE) & (pid != tid) & (leader >= 0)
    parent = np.where(joined, leader, parent)
    # A leader that was forked itself can start it only after that.
    late = joined & forked[leader]
    return Lives(
        tid=tid,
        pid=pid,
        uid=column(threads, "uid", 0),
        gid=column(threads, "gid", 0),
        umask=column(threads, "umask", 0),
        cwd_id=column(threads, "cwd_id"),
        start_ns=np.where(late, np.maximum(start_ns, start_ns[leader] + 1), start_ns),
        forked=forked,
        parent=parent,
        flags=_flags(threads),
        comm=np.array([str(c).encode()[:15] for c in threads["comm"].to_pylist()], "S16"),
    )


def moments(trace: Trace, event: str) -> tuple[Int, Int]:
    """Return (tid, time since the begin) of every recorded event of a kind: exec or exit."""
    tids, found = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    for events in trace.parts("task_events", ("ts_ns", "tid", "event")):
        since = column(events, "ts_ns") - begin_ns(trace)
        kind = pa.compute.equal(events["event"].cast(pa.string()), event).to_numpy()
        tids.append(column(events, "tid")[kind & (since > 0)])
        found.append(since[kind & (since > 0)])
    return np.concatenate(tids), np.concatenate(found)


def _split(threads: pa.Table, base: int) -> tuple[Int, Int, Int]:
    """Return rows of the table by start; the start (below 0: alive then) and parent of each."""
    starts = column(threads, "start_ns", base - 1) - base
    rows = np.argsort(starts, kind="stable")
    return rows, starts[rows], column(threads, "parent_tid", 0)[rows]


def _flags(threads: pa.Table) -> Int:
    def bit(name: str, value: int) -> Any:
        return threads[name].to_numpy(zero_copy_only=False).astype(np.int64) * value

    return np.asarray(bit("shares_files", SHARE_FILES) | bit("shares_fs", SHARE_FS), np.int64)
