"""Calls by thread and time: one index for all tables of a conversion."""

import numpy as np
import numpy.typing as npt

from spoolscope.traces.capture import Records

Int = npt.NDArray[np.int64]
Numbers = npt.NDArray[np.integer]
_THREAD = np.uint64(32)
_NO_CALL = np.iinfo(np.uint64).max


class CallIndex:
    """Finds a call by its thread and its start, or by its thread and a time within it.

    Args:
        calls: Records of calls; no two of a thread have one start.
    """

    def __init__(self, calls: Records) -> None:
        self._calls = calls
        self._starts = np.sort(calls["start_ns"])
        keys = self._keys_of(calls["tid"], calls["start_ns"])
        self._order = np.argsort(keys, kind="stable")
        self._keys = keys[self._order]

    def _keys_of(self, tid: Numbers, start: Numbers) -> npt.NDArray[np.uint64]:
        """Return one number for each thread and start, ``_NO_CALL`` where no call has that start.

        The place of the start among all starts keeps it within 32 bits, without collisions.
        """
        start = start.astype(np.uint64)
        place = np.searchsorted(self._starts, start)
        keys = tid.astype(np.uint64) << _THREAD | place.astype(np.uint64)
        found = np.zeros(len(start), np.bool_)
        inside = place < len(self._starts)
        found[inside] = self._starts[place[inside]] == start[inside]
        keys[~found] = _NO_CALL
        return keys

    def row(self, tid: Numbers, start: Numbers) -> Int:
        """Return the number of each call's record, -1 where there is none."""
        found = np.full(len(tid), -1, np.int64)
        if not len(self._keys) or not len(tid):
            return found
        keys = self._keys_of(tid, start)
        at = np.searchsorted(self._keys, keys)
        at[at == len(self._keys)] = 0
        hit = self._keys[at] == keys
        found[hit] = self._order[at[hit]]
        return found

    def seq(self, tid: Numbers, start: Numbers) -> Int:
        """Return the seq of each call, -1 where there is no such record."""
        return self.seq_of(self.row(tid, start))

    def seq_of(self, row: Int) -> Int:
        """Return the seq of each record, -1 for -1."""
        return self._member("seq", row)

    def end_of(self, row: Int) -> Int:
        """Return the time at which each record's call ended, -1 for -1."""
        return self._member("end_ns", row)

    def seq_at(self, tid: Numbers, ts_ns: Numbers) -> Int:
        """Return the seq of the call that each thread was in at a time, -1 if it was in none."""
        row = np.full(len(tid), -1, np.int64)
        if not len(self._keys) or not len(tid):
            return row
        begun = np.searchsorted(self._starts, ts_ns.astype(np.uint64), "right")
        keys = tid.astype(np.uint64) << _THREAD | begun.astype(np.uint64)
        at = np.searchsorted(self._keys, keys) - 1
        own = (at >= 0) & (self._keys[at] >> _THREAD == tid.astype(np.uint64))
        row[own] = self._order[at[own]]
        over = self.end_of(row) <= ts_ns.astype(np.int64)
        return np.where(over, -1, self.seq_of(row))

    def _member(self, name: str, row: Int) -> Int:
        if not len(self._keys):
            return row
        return np.where(row >= 0, self._calls[name][row].astype(np.int64), -1)
