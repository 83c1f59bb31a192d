"""Operations of a plan as arrays: making, picking and classifying them."""

from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from spoolscope.replay.columns import Int
from spoolscope.traces.calls import CALLS
from spoolscope.traces.constants import PLAN_EXEC, PLAN_EXIT, PLAN_FAULT, PLAN_FORK, PLAN_LEFT_OUT
from spoolscope.traces.flat import DTYPES, NO_CALL_ROW, NONE

Ops = npt.NDArray[np.void]
BYTES = np.dtype((np.void, DTYPES["plan_op"].itemsize))
# Operations that are no calls.
FORK, EXEC, EXIT = PLAN_FORK, PLAN_EXEC, PLAN_EXIT
FAULT, LEFT_OUT = PLAN_FAULT, PLAN_LEFT_OUT
BASE_ROOT = 1
# The ids of calls, and those above, are below this.
KINDS = 1 << 10


def picked(ops: Ops, at: npt.NDArray[Any]) -> Ops:
    """Return some operations, by place or as a mask, copied as bytes: member by member is slow."""
    some: Ops = ops.view(BYTES)[at].view(ops.dtype)
    return some


def pseudo(kind: int, thread: Int, ts_ns: Int) -> Ops:
    """Return operations of no recorded call."""
    ops = np.zeros(len(thread), DTYPES["plan_op"])
    ops["op"], ops["thread"] = kind, thread
    ops["start_ns"] = ops["end_ns"] = np.maximum(ts_ns, 0)
    for name in ("fd", "fd2", "dirfd", "dirfd2", "offset", "size", "obj_size"):
        ops[name] = -1
    for name in ("path", "path2", "given", "given2"):
        ops[name] = NONE
    ops["call"] = NO_CALL_ROW
    return ops


def are(kinds: npt.NDArray[np.uint16], names: tuple[str, ...]) -> npt.NDArray[np.bool_]:
    """Return which kinds of operations are calls of these names."""
    return _table(names)[kinds]


@cache
def _table(names: tuple[str, ...]) -> npt.NDArray[np.bool_]:
    table = np.zeros(KINDS, np.bool_)
    table[[CALLS[name].id for name in names]] = True
    return table
