"""Modes that are set as access ACLs which hold no more, as by cp -p, install and sed -i.

Recordings hold the mode, and so does strace output that is not cut; older recordings lack it.
"""

from pathlib import Path

import numpy as np
import numpy.typing as npt

from spoolscope.replay import on_disk
from spoolscope.replay.calls import SET_ACL
from spoolscope.replay.ops import Ops, are
from spoolscope.replay.outcomes import Plan, read_plan
from spoolscope.traces.abi import S_IFMT
from spoolscope.traces.flat import NONE

_NAME = b"system.posix_acl_access"
_BYTES = 28


def may_be_modes(ops: Ops) -> npt.NDArray[np.bool_]:
    """Return which operations set an attribute as long as such an ACL, with unknown mode."""
    found = are(ops["op"], SET_ACL)
    if found.any():
        known = (ops["ino"] != 0) & (ops["path2"] != NONE)
        found &= known & (ops["ret"] >= 0) & (ops["size"] == _BYTES) & (ops["mode"] == 0)
    return found


def learn_modes(plan_file: Path) -> None:
    """Give each such operation of a plan the mode that the next call on its file shows.

    The value of an attribute is never recorded.
    """
    plan = read_plan(plan_file, writable=True)
    parts = list(on_disk.parts(len(plan.ops)))
    rows = np.concatenate([np.flatnonzero(_sets(plan, part)) + part.start for part in parts])
    inos = np.unique(plan.ops["ino"][rows])
    showing = np.concatenate([_tells(plan.ops[part], inos) + part.start for part in parts])
    showing = showing[np.lexsort((showing, plan.ops["ino"][showing]))]
    ino, start_ns = plan.ops["ino"][showing], plan.ops["start_ns"][showing]
    for row in rows:
        op = plan.ops[row]
        first, past = np.searchsorted(ino, op["ino"]), np.searchsorted(ino, op["ino"], "right")
        after = first + int(np.searchsorted(start_ns[first:past], op["end_ns"]))
        if after < past:
            plan.ops["mode"][row] = plan.ops["obj_mode"][showing[after]]


def _sets(plan: Plan, part: slice) -> npt.NDArray[np.bool_]:
    found = may_be_modes(plan.ops[part])
    for at in np.flatnonzero(found):
        found[at] = plan.strings.raw(int(plan.ops["path2"][part][at])) == _NAME
    return found


def _tells(ops: Ops, inos: npt.NDArray[np.uint64]) -> npt.NDArray[np.int64]:
    return np.flatnonzero(np.isin(ops["ino"], inos) & (ops["obj_mode"] & S_IFMT != 0))
