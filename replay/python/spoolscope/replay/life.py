"""Process life: forks, execs and exits as operations, in order of time with the calls."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt

from spoolscope.replay import on_disk
from spoolscope.replay.calls import EXITING
from spoolscope.replay.columns import Int
from spoolscope.replay.ops import BYTES, EXEC, EXIT, FORK, KINDS, Ops, picked, pseudo
from spoolscope.replay.threads import Lives, moments
from spoolscope.traces.calls import CALLS, of_effect
from spoolscope.traces.flat import DTYPES, NONE
from spoolscope.traces.trace import Trace

_CAUSES = {
    FORK: of_effect("forks"),
    EXEC: of_effect("execs"),
    EXIT: EXITING,
}
# Event that each kind of operation causes; 0 is none.
_CAUSED = np.zeros(KINDS, np.uint16)
for _event, _names in _CAUSES.items():
    _CAUSED[[CALLS[name].id for name in _names]] = _event


def read_events(trace: Trace, lives: Lives) -> Iterator[Ops]:
    """Yield forks, execs and exits as operations of no call, at the time of each."""
    forked = np.flatnonzero(lives.parent != NONE)
    forks = pseudo(FORK, lives.parent[forked], lives.start_ns[forked])
    forks["arg"] = forked
    yield forks
    yield pseudo(EXEC, *_known(lives, *moments(trace, "exec")))
    yield pseudo(EXIT, *_known(lives, *moments(trace, "exit")))


def _known(lives: Lives, tid: Int, ts_ns: Int) -> tuple[Int, Int]:
    thread = lives.find(tid, ts_ns)
    return thread[thread >= 0], ts_ns[thread >= 0]


class _Causes:
    """Puts events in the place of the calls that caused them.

    Attributes:
        left: Mask of operations that stand in no call's place so far.
    """

    def __init__(self, added: Ops) -> None:
        kind = added["op"]
        at = np.flatnonzero((kind >= FORK) & (kind <= EXIT))
        self._added, self.left = added, np.ones(len(added), np.bool_)
        self._moments = np.unique(added["start_ns"][at])
        keys = self._keys_of(kind[at], added["thread"][at], added["start_ns"][at])
        order = np.argsort(keys, kind="stable")
        self._keys, self._at = keys[order], at[order]

    def _keys_of(
        self, event: npt.NDArray[np.uint16], thread: npt.NDArray[np.uint32], ts_ns: Int
    ) -> Int:
        """Return a key for each kind, thread and time; later times have no lower keys."""
        whose = thread.astype(np.int64) * len(_CAUSES) + (event - FORK)
        return whose * (len(self._moments) + 1) + np.searchsorted(self._moments, ts_ns)

    def settle(self, ops: Ops) -> None:
        """Turn calls into the events they caused; other forks become those of unknown children."""
        caused = _CAUSED[ops["op"]]
        at = np.flatnonzero((caused > 0) & (ops["ret"] >= 0))
        caused = caused[at]
        ops["arg"][at[caused == FORK]] = NONE
        ops["op"][at[caused == FORK]] = FORK
        keys = self._keys_of(caused, ops["thread"][at], ops["start_ns"][at])
        next_ = np.searchsorted(self._keys, keys)
        known = next_ < len(self._keys)
        at, caused, event = at[known], caused[known], self._at[next_[known]]
        added = self._added[event]
        hit = (added["op"] == caused) & (added["thread"] == ops["thread"][at]) & self.left[event]
        # Exits have no end.
        hit &= (caused == EXIT) | (added["start_ns"] <= ops["end_ns"][at])
        # If several calls may have caused one event, the last one did.
        event, last = np.unique(event[hit][::-1], return_index=True)
        at, added = at[hit][::-1][last], added[hit][::-1][last]
        added["call"], added["start_ns"] = ops["call"][at], ops["start_ns"][at]
        added["end_ns"] = np.maximum(added["end_ns"], ops["end_ns"][at])
        ops[at], self.left[event] = added, False


def in_order(
    calls: Iterator[Ops], others: Iterator[Ops], n_threads: int, place: Path
) -> Iterator[Ops]:
    """Yield all operations in order of time, piece by piece.

    Args:
        calls: Operations of calls, in that order.
        others: Process events and other operations that are no calls.
        n_threads: Number of threads.
        place: Directory for unlinked files.
    """
    added = on_disk.gathered(others, DTYPES["plan_op"], place)
    order = _order(added["op"], added["start_ns"])
    sorted_ = (picked(added, order[part]) for part in on_disk.parts(len(added)))
    added = on_disk.gathered(sorted_, added.dtype, place)
    causes = _Causes(added)
    exits_left = np.bincount(added["thread"][added["op"] == EXIT], minlength=n_threads)
    finished = np.zeros(n_threads, np.bool_)
    waiting, done = added[:0], 0
    for ops in calls:
        causes.settle(ops)
        # The next piece may have more calls that begin at the same time as the last of these.
        cut = int(np.searchsorted(ops["start_ns"], ops["start_ns"][-1])) if len(ops) else 0
        if not cut:
            waiting = _sorted(waiting, ops)
            continue
        until = ops["start_ns"][cut]
        past = int(np.searchsorted(added["start_ns"], until))
        both = _sorted(waiting, ops[:cut], picked(added[done:past], causes.left[done:past]))
        waiting, done = ops[cut:], max(done, past)
        yield _within_life(both, exits_left, finished)
    rest = picked(added[done:], causes.left[done:])
    yield _within_life(_sorted(waiting, rest), exits_left, finished)


def _sorted(*parts: Ops) -> Ops:
    """Put parts in order; records are copied as bytes and only once, as that takes the time."""
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


def _order(kind: npt.NDArray[np.uint16], start_ns: Int) -> Int:
    """Return the order by time; at one moment forks come first and exits last."""
    rank = np.where(kind == FORK, 0, np.where(kind == EXIT, 2, 1)).astype(np.int8)
    return np.lexsort((rank, start_ns))


def _within_life(ops: Ops, exits_left: Int, finished: npt.NDArray[np.bool_]) -> Ops:
    """Drop operations of a thread after its exit: clocks of two sources can disagree.

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
