"""Calls that cross the edge of a spool that is only a directory of its filesystem."""

import numpy as np
import numpy.typing as npt

from spoolscope.tracers.path_ids import Devices
from spoolscope.tracers.resolved import Resolved
from spoolscope.traces.abi import S_IFMT, S_IFREG
from spoolscope.traces.calls import CALLS, of_effect
from spoolscope.traces.capture import Capture, Records

Int = npt.NDArray[np.int64]
_RENAMES, _LINKS = of_effect("renames"), of_effect("links")


def edge(capture: Capture, resolved: Resolved, device: Devices) -> dict[str, int] | None:
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
