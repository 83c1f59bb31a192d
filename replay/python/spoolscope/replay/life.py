"""Process life: forks, execs and exits as operations, in order of time with the calls."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from spoolscope.replay import on_disk
from spoolscope.replay.attached import BYTES, Ops, picked, pseudo
from spoolscope.replay.calls import EXITING, Calls
from spoolscope.replay.threads import Int, Lives, execs, exits
from spoolscope.traces.calls import CALLS
from spoolscope.traces.flat import NONE
from spoolscope.traces.trace import Trace

FORK, EXEC, EXIT = 1000, 1001, 1002
FORKING = ("fork", "vfork", "clone", "clone3")
EXECUTING = ("execve", "execveat")


@dataclass(frozen=True)
class Life:
    """What becomes of processes.

    Attributes:
        events: FORK, EXEC and EXIT operations.
        merged: Rows of calls that an event stands for, sorted.
        childless: Rows of forks whose child the trace does not know, sorted.
    """

    events: Ops
    merged: Int
    childless: Int


def read_life(trace: Trace, calls: Calls, lives: Lives, place: Path) -> Life:
    """Find each process event, and the call that caused it; ``place`` is for files of these."""
    forked = np.flatnonzero(lives.parent != NONE)
    forks = pseudo(FORK, lives.parent[forked], lives.start_ns[forked])
    forks["arg"] = forked
    execs_ = pseudo(EXEC, *_known(lives, *execs(trace)))
    exits_ = pseudo(EXIT, *_known(lives, *exits(trace)))
    causes = calls.of((*FORKING, *EXECUTING, *EXITING))
    causes = causes[causes["ret"] >= 0]
    kept = np.ones(len(causes), np.bool_)
    for events, names in ((forks, FORKING), (execs_, EXECUTING), (exits_, EXITING)):
        _merge(causes, kept, events, names)
    childless = kept & np.isin(causes["op"], _ids(FORKING))
    rows = causes["call"].astype(np.int64)
    events = on_disk.gathered([forks, execs_, exits_], forks.dtype, place)
    return Life(events, rows[~kept], rows[childless])


def _known(lives: Lives, tid: Int, ts_ns: Int) -> tuple[Int, Int]:
    thread = lives.find(tid, ts_ns)
    return thread[thread >= 0], ts_ns[thread >= 0]


def _ids(names: tuple[str, ...]) -> list[int]:
    return [CALLS[name].id for name in names]


def _merge(calls: Ops, kept: npt.NDArray[np.bool_], events: Ops, names: tuple[str, ...]) -> None:
    """Give each event the time and row of the call that caused it; do not keep those calls."""
    causes = np.flatnonzero(np.isin(calls["op"], _ids(names)) & kept)
    causes = causes[np.lexsort((calls["start_ns"][causes], calls["thread"][causes]))]
    thread, start = calls["thread"][causes].astype(np.int64), calls["start_ns"][causes]
    big = int(max(start.max(initial=0), events["start_ns"].max(initial=0))) + 1
    key = thread * big + start
    wanted = events["thread"].astype(np.int64) * big + events["start_ns"]
    at = np.searchsorted(key, wanted, "right") - 1
    hit = at >= 0
    hit[hit] = thread[at[hit]] == events["thread"][hit]
    if names != EXITING:  # exits do not end
        hit[hit] = events["start_ns"][hit] <= calls["end_ns"][causes[at[hit]]]
    cause = causes[at[hit]]
    events["call"][hit] = calls["call"][cause]
    events["end_ns"][hit] = np.maximum(calls["end_ns"][cause], events["end_ns"][hit])
    events["start_ns"][hit] = calls["start_ns"][cause]
    kept[cause] = False


def in_order(
    calls: Iterator[Ops], life: Life, others: Ops, n_threads: int, place: Path
) -> Iterator[Ops]:
    """Yield all operations in order of time, piece by piece.

    Args:
        calls: Those of calls, in that order.
        life: Process events.
        others: Operations that are no calls.
        n_threads: Number of threads.
        place: Directory for unlinked files.
    """
    added = on_disk.gathered([others, life.events], others.dtype, place)
    order = _order(added["op"], added["start_ns"])
    sorted_ = (picked(added, order[part]) for part in on_disk.parts(len(added)))
    added = on_disk.gathered(sorted_, others.dtype, place)
    exits_left = np.bincount(added["thread"][added["op"] == EXIT], minlength=n_threads)
    finished = np.zeros(n_threads, np.bool_)
    waiting, done = added[:0], 0
    for piece in calls:
        ops = _without_life(piece, life)
        # What begins with the last of these may have company in the next piece.
        cut = int(np.searchsorted(ops["start_ns"], ops["start_ns"][-1])) if len(ops) else 0
        if not cut:
            waiting = _sorted(waiting, ops)
            continue
        until = ops["start_ns"][cut]
        past = int(np.searchsorted(added["start_ns"], until))
        both = _sorted(waiting, ops[:cut], added[done:past])
        waiting, done = ops[cut:], max(done, past)
        yield _within_life(both, exits_left, finished)
    yield _within_life(_sorted(waiting, added[done:]), exits_left, finished)


def _sorted(*parts: Ops) -> Ops:
    """Put parts in order; records are copied as bytes, and once: that is what takes the time."""
    parts = tuple(part for part in parts if len(part)) or parts[:1]
    order = _order(*(np.concatenate([part[name] for part in parts]) for name in ("op", "start_ns")))
    if len(parts) == 1 and (order[1:] > order[:-1]).all():
        return parts[0]
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    both = np.empty(len(order), BYTES)
    first = 0
    for part in parts:
        both[place[first : first + len(part)]] = part.view(BYTES)
        first += len(part)
    return both.view(parts[0].dtype)


def _without_life(ops: Ops, life: Life) -> Ops:
    """Leave out calls that an event stands for; mark forks of unknown children."""
    rows = ops["call"].astype(np.int64)
    childless = _places(rows, life.childless)
    ops["op"][childless], ops["arg"][childless] = FORK, NONE
    merged = _places(rows, life.merged)
    return picked(ops, np.delete(np.arange(len(ops)), merged)) if len(merged) else ops


def _places(rows: Int, wanted: Int) -> Int:
    """Return where some rows are among others; both are sorted."""
    first, last = np.searchsorted(rows, wanted), np.searchsorted(rows, wanted, "right")
    return first[last > first]


def _order(kind: npt.NDArray[np.uint16], start_ns: Int) -> Int:
    """By time; exits come last and forks first among operations of one moment."""
    rank = np.where(kind == FORK, 0, np.where(kind == EXIT, 2, 1)).astype(np.int8)
    return np.lexsort((rank, start_ns))


def _within_life(ops: Ops, exits_left: Int, finished: npt.NDArray[np.bool_]) -> Ops:
    """Drop what a thread seems to do after its exit: clocks of two sources can disagree.

    Args:
        ops: Operations in order of time.
        exits_left: Exits of each thread from here on; changed.
        finished: Threads whose last exit has come; changed.
    """
    last = np.where(finished, -1, np.iinfo(np.int64).max)
    exits_ = np.flatnonzero(ops["op"] == EXIT)
    whose = ops["thread"][exits_]
    np.subtract.at(exits_left, whose, 1)
    final = exits_left[whose] == 0
    last[whose[final]] = exits_[final]
    finished[whose[final]] = True
    within = np.arange(len(ops)) <= last[ops["thread"]]
    return ops if within.all() else picked(ops, within)
