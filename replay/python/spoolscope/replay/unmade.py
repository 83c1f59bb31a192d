"""Counting of calls that belong to the part that is asked for, but that no plan can have."""

import numpy as np

from spoolscope.replay.chosen import Mask, directory_of, of_processes
from spoolscope.replay.columns import Int
from spoolscope.replay.ops import Ops
from spoolscope.replay.strings import Strings
from spoolscope.replay.threads import Lives
from spoolscope.traces.flat import NONE
from spoolscope.traces.slices import Slice


class Asked:
    """A part of the recording; calls belong to it by their beginning, process and mailbox.

    Elsewhere the effect of a call decides on which side of a cut it is; here it is unknown.

    Args:
        part: The part in time, since the plan's begin; None is all.
        only: Processes and mailboxes, as in ``chosen.of_processes``; none means all.

    Attributes:
        by_process: The process of a call matters.
    """

    def __init__(
        self, lives: Lives, strings: Strings, part: Slice | None, only: tuple[str, ...]
    ) -> None:
        self._part = part
        self.by_process = bool(only)
        self._pids = {int(word) for word in only if word.isdecimal()}
        processes = of_processes(lives.pid, lives.comm, only)
        self._threads = np.append(processes, False)
        roots = [directory_of(word).encode() for word in only]
        self._names = np.append(strings.below_any(roots), False)

    def count(self, ops: Ops, pids: Int | None) -> int:
        """Return how many of some calls belong to the part.

        Args:
            ops: The calls; an unknown thread is NONE.
            pids: The process of each, from the trace, if ``by_process``.
        """
        asked = np.ones(len(ops), np.bool_)
        if self._part is not None:
            asked &= ops["start_ns"] >= self._part.from_ns
            if self._part.to_ns is not None:
                asked &= ops["start_ns"] < self._part.to_ns
        if pids is not None:
            asked &= self._of(ops, pids)
        return int(asked.sum())

    def _of(self, ops: Ops, pids: Int) -> Mask:
        thread = np.where(ops["thread"] == NONE, len(self._threads) - 1, ops["thread"])
        of: Mask = self._threads[thread] | np.isin(pids, list(self._pids))
        for name in ("path", "path2"):
            # Names that were added later belong to no call.
            of |= self._names[np.minimum(ops[name], len(self._names) - 1)]
        return of
