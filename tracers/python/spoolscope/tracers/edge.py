"""Calls that cross the edge of a spool that is only a directory of its filesystem."""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from spoolscope.tracers.effects import S_IFMT
from spoolscope.tracers.resolve import Resolved
from spoolscope.tracers.state import S_IFREG
from spoolscope.traces.calls import CALLS
from spoolscope.traces.capture import Capture, Records

Int = npt.NDArray[np.int64]
_RENAMES, _LINKS = ("rename", "renameat", "renameat2"), ("link", "linkat")


def edge(
    capture: Capture, resolved: Resolved, device: Callable[[Int], Int]
) -> dict[str, int] | None:
    """Count calls that succeeded with one name on a spool and one outside, and links out of it.

    Args:
        capture: The capture.
        resolved: Names of its calls.
        device: Device of the spool that each path id lies on, 0 outside.

    Returns:
        The counts; None if every spool is a whole filesystem, whose edge nothing crosses.
    """
    parts = [int(s["dev"]) for s in capture.meta.get("spools", []) if s.get("part")]
    if not parts:
        return None
    calls = capture.records["syscall"]
    known = (resolved.path >= 0) & (resolved.path2 >= 0) & (calls["ret"] == 0)
    was, now = device(resolved.path) > 0, device(resolved.path2) > 0
    found = {}
    for word, names in (("renamed", _RENAMES), ("linked", _LINKS)):
        these = known & np.isin(calls["call"], [CALLS[name].id for name in names])
        found[f"{word}_in"] = int((these & ~was & now).sum())
        found[f"{word}_out"] = int((these & was & ~now).sum())
    return found | {"linked_elsewhere": _linked_elsewhere(capture.records["tree"], parts)}


def _linked_elsewhere(tree: Records, parts: list[int]) -> int:
    """Count files of the snapshot that have more names than it shows."""
    files = tree[(tree["mode"] & S_IFMT == S_IFREG) & np.isin(tree["dev"], parts)]
    keys = np.column_stack([files["dev"], files["ino"]]).astype(np.int64)
    _, first, met = np.unique(keys, axis=0, return_index=True, return_counts=True)
    return int((files["nlink"][first] > met).sum())
