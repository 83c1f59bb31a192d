"""The names that calls were looking up when they went to sleep.

The recorder states the string of the call that holds a name, and the position in it; here that
becomes a path: the name in the directory that was searched.
"""

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt

from spoolscope.traces.capture import Capture, Records

Int = npt.NDArray[np.int64]
STRINGS = ("none", "path", "path2", "link")
"""Names of enum spsc_name_of."""
NONE, PATH, PATH2 = 0, 1, 2


class Paths(Protocol):
    """Absolute paths by id."""

    def id(self, path: bytes, /) -> int:
        """Return the id of a path, adding it if needed."""

    def path(self, number: int, /) -> bytes:
        """Return the path of an id."""


def looked_up(
    capture: Capture, switches: Records, calls: Int, dir_id: Int, paths: Paths
) -> tuple[Int, npt.NDArray[np.integer]]:
    """Return the name that was looked up in each absence, and the string of the call that has it.

    Args:
        capture: The capture.
        switches: Absences of its calls.
        calls: Row of the call of each absence, -1 if there is none.
        dir_id: Path id of the directory that each lookup had reached, -1 if unknown.
        paths: Table of paths; new names are added.

    Returns:
        Path ids, -1 if unknown; and places in STRINGS, NONE where no name was looked up.
    """
    of = switches["name_of"].clip(0, len(STRINGS) - 1)
    of = np.where((calls >= 0) & (dir_id >= 0), of, NONE)
    found = np.full(len(switches), -1, np.int64)
    named = np.flatnonzero((of == PATH) | (of == PATH2))
    rows = capture.records["syscall"][calls[named]]
    first = of[named] == PATH
    text = np.where(first, rows["path"], rows["path2"])
    # The kernel's position is relative to the path that the caller passed.
    at = switches["name_at"][named] + np.where(first, rows["longer"], rows["longer2"])
    keys = np.column_stack([text, at, switches["name_bytes"][named], dir_id[named]]).astype(
        np.int64
    )
    unique, where = np.unique(keys, axis=0, return_inverse=True)
    ids = [_id(capture.strings, paths, *key) for key in unique.tolist()]
    found[named] = np.array(ids, np.int64)[where.ravel()]
    of[named[found[named] < 0]] = NONE
    return found, of


def _id(
    strings: Sequence[bytes], paths: Paths, text: int, at: int, length: int, dir_id: int
) -> int:
    name = component(strings[text], at, length)
    return -1 if name is None else paths.id(paths.path(dir_id).rstrip(b"/") + b"/" + name)


def component(path: bytes, at: int, length: int) -> bytes | None:
    """Return the component of a path that begins at a byte; None if there is none of that length.

    A path may have changed, or be known in part only, when it was recorded.
    """
    if at < 0:  # in the beginning of the path, which was recorded in another form
        return None
    name = path[at : at + length]
    around = path[at - 1 : at] + path[at + length : at + length + 1]
    whole = len(name) == length and not around.strip(b"/") and b"/" not in name
    return name if whole and name not in (b"", b".", b"..") else None
