"""Lives of recorded threads: who forked whom, and which life a call belongs to."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spoolscope.traces.flat import NONE
from spoolscope.traces.trace import Trace

Int = npt.NDArray[np.int64]
SHARE_FILES, SHARE_FS = 1, 2


@dataclass(frozen=True)
class Lives:
    """Threads of a trace; a reused tid has one life per fork.

    Attributes:
        tid, pid, uid, gid, umask, cwd_id: Per life; cwd_id is -1 if unknown.
        start_ns: Since the replay's begin; 0 if alive then.
        forked: The life began after that.
        parent: Index of the life that forked it, or NONE.
        flags: enum spsc_task_flags: what is shared with the parent.
        comm: Last name.
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

    def find(self, tid: Int, ts_ns: Int) -> Int:
        """Return the life that each (tid, time) belongs to; -1 for unknown tids."""
        order = np.lexsort((self.start_ns, self.tid))
        tids, starts = self.tid[order], self.start_ns[order]
        # The last life of the tid that began before the moment: count lives at or before it.
        first = np.searchsorted(tids, tid, "left")
        past = np.searchsorted(tids, tid, "right")
        known = past > first
        found = np.where(known, first, 0)
        for step in range(1, int((past - first).max(initial=0))):
            at = np.minimum(first + step, len(tids) - 1)
            found = np.where((first + step < past) & (starts[at] <= ts_ns), at, found)
        return np.where(known, order[found] if len(order) else -1, -1)


def column(table: pa.Table, name: str, missing: int = -1) -> Int:
    """Return an integer column, perhaps a view that cannot be written; nulls become ``missing``."""
    return filled(table, name, missing).astype(np.int64, copy=False)


def filled(table: pa.Table, name: str, missing: int) -> npt.NDArray[Any]:
    """Return an integer column in its own type, as ``column`` does."""
    values = table[name].combine_chunks()
    if values.null_count:
        values = values.fill_null(missing)
    found: npt.NDArray[Any] = values.to_numpy()
    return found


def begin_ns(trace: Trace) -> int:
    """Return when the replay begins, since the epoch: at the moment that the snapshot shows."""
    return int(trace.meta.get("snapshot_ns", trace.meta["start_ns"]))


def read_lives(trace: Trace) -> Lives:
    """Put together the lives of all recorded threads of user space that the replay has."""
    threads = trace.table("threads")
    begin = begin_ns(trace)
    lived = column(threads, "end_ns", begin + 1) > begin
    is_task = pa.compute.equal(threads["kind"].cast(pa.string()), "task")
    threads = threads.filter(pa.compute.and_(is_task, pa.array(lived)))
    rows, starts, parents = _split(threads, begin)
    threads = threads.take(pa.array(rows))
    forked = starts >= 0
    tid = column(threads, "tid")
    lives = Lives(
        tid=tid,
        pid=column(threads, "pid"),
        uid=column(threads, "uid", 0),
        gid=column(threads, "gid", 0),
        umask=column(threads, "umask", 0),
        cwd_id=column(threads, "cwd_id"),
        start_ns=np.maximum(starts, 0),
        forked=forked,
        parent=np.full(len(tid), NONE, np.int64),
        flags=_flags(threads),
        comm=np.array([str(c).encode()[:15] for c in threads["comm"].to_pylist()], "S16"),
    )
    found = lives.find(parents, starts - 1)
    lives.parent[:] = np.where(forked & (found >= 0) & (parents > 0), found, NONE)
    _join_processes(lives)
    return lives


def _moments(trace: Trace, event: str) -> tuple[Int, Int]:
    events = trace.table("task_events")
    events = events.filter(pa.compute.equal(events["event"].cast(pa.string()), event))
    since = column(events, "ts_ns") - begin_ns(trace)
    return column(events, "tid")[since > 0], since[since > 0]


def exits(trace: Trace) -> tuple[Int, Int]:
    """Return (tid, time since the begin) of every recorded exit."""
    return _moments(trace, "exit")


def execs(trace: Trace) -> tuple[Int, Int]:
    """Return (tid, time since the begin) of every recorded exec."""
    return _moments(trace, "exec")


def _split(threads: pa.Table, base: int) -> tuple[Int, Int, Int]:
    """Rows of the threads table by start; start (below 0: alive then) and forking tid of each."""
    starts = column(threads, "start_ns", base - 1) - base
    rows = np.argsort(starts, kind="stable")
    return rows, starts[rows], column(threads, "parent_tid", 0)[rows]


def _flags(threads: pa.Table) -> Int:
    def bit(name: str, value: int) -> Any:
        return threads[name].to_numpy(zero_copy_only=False).astype(np.int64) * value

    return np.asarray(bit("shares_files", SHARE_FILES) | bit("shares_fs", SHARE_FS), np.int64)


def _join_processes(lives: Lives) -> None:
    """A thread alive at start, or whose fork was lost, is started by the leader of its process."""
    strays = (lives.parent == NONE) & (lives.pid != lives.tid)
    leader = lives.find(lives.pid, lives.start_ns)
    joined = strays & (leader >= 0)
    lives.parent[joined] = leader[joined]
    # A leader that was forked itself can do so only then.
    late = joined & lives.forked[leader]
    lives.start_ns[late] = np.maximum(lives.start_ns[late], lives.start_ns[leader[late]] + 1)
