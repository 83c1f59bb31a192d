"""The faults table: reads and writes of programs through mappings of spool files."""

from typing import Any

import numpy as np
import numpy.typing as npt

from spoolscope.tracers.call_index import CallIndex
from spoolscope.tracers.inodes import Inodes
from spoolscope.traces import constants
from spoolscope.traces.capture import Capture

PAGE, AROUND, DIRTY = constants.FAULT_PAGE, constants.FAULT_AROUND, constants.FAULT_DIRTY
ABSENT = constants.FAULT_ABSENT

Int = npt.NDArray[np.int64]


def fault_columns(capture: Capture, index: CallIndex, inodes: Inodes) -> dict[str, Any]:
    """Return one row per page fault, put together from its steps.

    If a step that looks for the page is followed by another such step, the kernel had to release
    its locks and try again: it counts such a fault as major.
    """
    steps = capture.records["fault"]
    steps = steps[np.lexsort((steps["ts_ns"], steps["tid"]))]
    first = np.ones(len(steps), np.bool_)
    for member in ("tid", "n_faults", "ino", "dev"):
        first[1:] &= steps[member][1:] == steps[member][:-1]
    first[1:] = ~first[1:]
    at = np.nonzero(first)[0]
    group = np.cumsum(first) - 1
    head, tail = steps[at], steps[np.append(at, len(steps))[1:] - 1]

    def some(where: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
        found = np.zeros(len(at), np.bool_)
        found[group[where]] = True
        return found

    def last(where: npt.NDArray[np.bool_], member: str) -> Int:
        """Return the member of the last such step of each fault, -1 without one."""
        found = np.full(len(at), -1, np.int64)
        found[group[where]] = steps[member][where].astype(np.int64)
        return found

    looked, around = steps["event"] == PAGE, steps["event"] == AROUND
    dirty = steps["event"] == DIRTY
    single = looked | (dirty & (steps["n_pages"] == 1))
    again = np.zeros(len(steps), np.bool_)
    again[1:] = looked[:-1] & (looked | around)[1:] & ~first[1:]
    absent = some(looked & (steps["flags"] & ABSENT > 0))
    ranged = around | (dirty & (steps["n_pages"] > 1))
    shift = np.int64(capture.start_real_ns - capture.start_mono_ns)
    start = head["ts_ns"].astype(np.int64)
    seq = index.seq(head["tid"], head["call_ns"])
    return {
        "ts_ns": start + shift,
        "dur_ns": np.ma.masked_equal(tail["ts_ns"].astype(np.int64) - start, 0),
        "pid": head["pid"].astype(np.int32),
        "tid": head["tid"].astype(np.int32),
        "seq": np.ma.masked_less(seq, 0),
        "path_id": np.ma.masked_less(inodes.path(head["dev"], head["ino"], head["ts_ns"]), 0),
        "dev": head["dev"].astype(np.int64),
        "ino": head["ino"].astype(np.int64),
        "page": np.ma.masked_less(last(single, "page"), 0),
        "first_page": np.ma.masked_less(last(ranged, "page"), 0),
        "n_pages": np.ma.masked_less(last(ranged, "n_pages").astype(np.int32), 0),
        "absent": absent,
        "major": absent | some(again),
        "write": some(dirty),
    }
