"""Names of files for records that have only an inode."""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from spoolscope.tracers.path_ids import Devices
from spoolscope.tracers.resolved import Resolved
from spoolscope.traces.capture import Capture

Int = npt.NDArray[np.int64]
PathId = Callable[[bytes], int]


class Inodes:
    """Names of inodes, from calls and from the open files, mappings and tree at the start.

    Args:
        capture: The capture.
        resolved: Names of its calls.
        path_id: Id of an absolute path.
        device: Returns the device of the spool that each path id lies on.
    """

    def __init__(
        self, capture: Capture, resolved: Resolved, path_id: PathId, device: Devices
    ) -> None:
        calls = capture.records["syscall"]
        named = (calls["ino"] > 0) & (resolved.path >= 0)
        inos, times = [calls["ino"][named]], [calls["start_ns"][named]]
        paths = [resolved.path[named].astype(np.int64)]
        devs = [device(paths[0])]
        maps = capture.records["mapping"]
        mapped = [capture.strings[i].removesuffix(b" (deleted)") for i in maps["path"].tolist()]
        # The last of equal times counts: names of the snapshot are followed through renames, those
        # of mappings are not.
        for dev, ino, texts in [(maps["dev"], maps["ino"], mapped), resolved.state.named()]:
            inos.append(ino.astype(np.uint64))
            times.append(np.zeros(len(ino), np.uint64))
            paths.append(np.array([path_id(text) for text in texts], np.int64))
            devs.append(dev.astype(np.int64))
        self._ino, self._dev = np.concatenate(inos), np.concatenate(devs)
        self._time, self._path = np.concatenate(times), np.concatenate(paths)

    def path(
        self,
        dev: npt.NDArray[np.integer],
        ino: npt.NDArray[np.integer],
        ts_ns: npt.NDArray[np.integer],
    ) -> Int:
        """Return the path id of each file at a time, -1 if no record named it.

        It is the last name that was used before, or else the first one after.
        """
        if not len(ino):
            return np.zeros(0, np.int64)
        wanted = np.unique(ino)
        at = np.searchsorted(wanted, self._ino)
        known = wanted[at.clip(max=len(wanted) - 1)] == self._ino
        n = int(known.sum())
        file = _numbered(
            np.concatenate([self._dev[known], dev.astype(np.int64)]),
            np.concatenate([self._ino[known], ino]).astype(np.int64),
        )
        time = np.concatenate([self._time[known], ts_ns]).astype(np.int64)
        path = np.concatenate([self._path[known], np.full(len(ino), -1)])
        order = np.lexsort((path < 0, time, file))
        before = _carried(file[order], path[order])
        after = _carried(file[order][::-1], path[order][::-1])[::-1]
        found = np.empty(len(path), np.int64)
        found[order] = np.where(before >= 0, before, after)
        return found[n:]


def _numbered(dev: Int, ino: Int) -> Int:
    """Return a number for each file, the same for the same file."""
    _, of_dev = np.unique(dev, return_inverse=True)
    inos, of_ino = np.unique(ino, return_inverse=True)
    return of_dev.ravel() * len(inos) + of_ino.ravel()


def _carried(file: Int, path: Int) -> Int:
    """Return the path of each row, or else the last path before it of the same file."""
    rows = np.arange(len(path))
    last = np.maximum.accumulate(np.where(path >= 0, rows, -1))
    same = (last >= 0) & (file[last] == file)
    return np.where(same, path[last], -1)
