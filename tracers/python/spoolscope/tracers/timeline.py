"""Events between the calls, in order of time."""

from collections.abc import Callable

import numpy as np

from spoolscope.tracers.processes import Processes
from spoolscope.tracers.start import Finding
from spoolscope.traces.capture import Capture, Records

FOREVER = 1 << 63


class Timeline:
    """Task events and records of the snapshot.

    Args:
        capture: The capture.
        processes: Gets task events and descriptors.
        finding: Gets the names that the walk saw and the moment of the snapshot, if given.
        after_ns: Events up to this time are left out.
    """

    def __init__(
        self,
        capture: Capture,
        processes: Processes,
        finding: Finding | None = None,
        after_ns: int = -1,
    ) -> None:
        sources: list[tuple[Records, Callable[[np.void], None]]] = [
            (capture.records["task"], processes.task),
            (capture.records["open_file"], processes.file),
        ]
        if finding is not None:
            cut = np.zeros(1, [("ts_ns", np.uint64)])
            cut["ts_ns"] = finding.cut_ns
            sources += [(cut, lambda _: finding.cut()), (finding.tree, finding.row)]
        times = np.concatenate([rows["ts_ns"] for rows, _ in sources]).astype(np.int64)
        which = np.repeat(np.arange(len(sources)), [len(rows) for rows, _ in sources])
        at = np.concatenate([np.arange(len(rows)) for rows, _ in sources])
        order = np.argsort(times, kind="stable")
        order = order[times[order] > after_ns]
        self._sources, self._next = sources, 0
        self._which, self._at = which[order].tolist(), at[order].tolist()
        self._times: list[int] = [*times[order].tolist(), FOREVER]

    @property
    def next_ns(self) -> int:
        """Time of the next event; later than any call if none is left."""
        return self._times[self._next]

    def until(self, ts_ns: int) -> None:
        """Apply the events up to a time."""
        while self._times[self._next] <= ts_ns:
            rows, apply = self._sources[self._which[self._next]]
            apply(rows[self._at[self._next]])
            self._next += 1
