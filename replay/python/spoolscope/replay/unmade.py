"""Calls that no plan has, counted in the part that is asked for: the plan cannot tell of them."""

import numpy as np

from spoolscope.replay.chosen import Mask, directory_of, of_processes
from spoolscope.replay.columns import Int
from spoolscope.replay.ops import Ops
from spoolscope.replay.strings import Strings
from spoolscope.replay.threads import Lives
from spoolscope.traces.flat import NONE
from spoolscope.traces.slices import Slice


class Asked:
    """Which calls belong to a part of the recording: by their beginning, and by who made them.

    What a call did decides on which side of a cut it is; of these nobody knows what they did.

    Args:
        part: The part in time, since the plan's begin; None is all.
        only: Processes and mailboxes, as in ``chosen.chosen``; none means all.

    Attributes:
        by_process: Who made a call counts.
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
        """Return how many of some calls belong to it.

        Args:
            ops: The calls; of those of unknown threads the thread is NONE.
            pids: The process of each, as the trace has it, if ``by_process``.
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
            # Names that were added later are of no call.
            of |= self._names[np.minimum(ops[name], len(self._names) - 1)]
        return of
