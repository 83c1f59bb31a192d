"""The operation that opened the descriptor of a call, in its process or an ancestor."""

from functools import cached_property

import numpy as np
import numpy.typing as npt

from spoolscope.replay import on_disk
from spoolscope.replay.ops import FORK, Ops, are
from spoolscope.traces.calls import CALLS
from spoolscope.traces.flat import NONE

_MAKING = ("open", "openat", "openat2", "creat", "dup", "dup2", "dup3")
_FCNTL = CALLS["fcntl"].id
_DUPLICATING = (0, 1030)  # F_DUPFD, F_DUPFD_CLOEXEC
_MOST = 1 << 16


class Openers:
    """Finds these operations in a plan."""

    def __init__(self, ops: Ops, threads: npt.NDArray[np.void]) -> None:
        self._ops, self._parent = ops, threads["parent"].tolist()
        self.process = _processes(threads)

    @cached_property
    def _made(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Return (process and descriptor, operation) of all new descriptors, in that order."""
        ops, found = self._ops, [np.zeros(0, np.int64)]
        for part in on_disk.parts(len(ops)):
            some = ops[part]
            makes = are(some["op"], _MAKING)
            makes |= (some["op"] == _FCNTL) & np.isin(some["cmd"], _DUPLICATING)
            found.append(np.flatnonzero(makes & (some["ret"] >= 0)) + part.start)
        at = np.concatenate(found)
        processes = np.array(self.process, np.int64)
        keys = processes[ops["thread"][at]] * _MOST + ops["ret"][at]
        order = np.argsort(keys, kind="stable")
        return keys[order], at[order]

    @cached_property
    def _forks(self) -> dict[int, int]:
        at = np.flatnonzero((self._ops["op"] == FORK) & (self._ops["arg"] != NONE))
        return dict(zip(self._ops["arg"][at].tolist(), at.tolist(), strict=True))

    def opener(self, thread: int, fd: int, before: int) -> int | None:
        """Return the operation that made a descriptor; None if it was open at start."""
        keys, makers = self._made
        process = self.process[thread]
        while True:
            key = process * _MOST + fd
            first, last = np.searchsorted(keys, [key, key + 1])
            at = int(first + np.searchsorted(makers[first:last], before))
            if at > first:
                return int(makers[at - 1])
            above = self._parent[process]
            if above == NONE or process not in self._forks:
                return None
            before, process = self._forks[process], self.process[above]


def _processes(threads: npt.NDArray[np.void]) -> list[int]:
    """Return for each thread the one that stands for its process: the oldest with its pid."""
    parent, pid = threads["parent"].tolist(), threads["pid"].tolist()
    found = []
    for at in range(len(pid)):
        while parent[at] != NONE and pid[parent[at]] == pid[at]:
            at = parent[at]
        found.append(at)
    return found
