"""The tables of the state at start: open files and the tree."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from spoolscope.tracers.effects import SHAPES
from spoolscope.tracers.lives import EXIT, FORK
from spoolscope.tracers.namespace import Namespace
from spoolscope.tracers.nodes import Node
from spoolscope.tracers.processes import OpenFile
from spoolscope.tracers.start import Start
from spoolscope.traces.abi import S_IFMT, S_IFREG
from spoolscope.traces.calls import CALLS
from spoolscope.traces.capture import Capture, Records
from spoolscope.traces.parquet import ROW_GROUP

Columns = dict[str, Any]
PathId = Callable[[bytes], int]
PART = ROW_GROUP // 4
Int = npt.NDArray[np.int64]
_FCNTL = CALLS["fcntl"].id
_NO_NODE = Node(b"", None)  # a node would keep all others in memory


class State:
    """State at the start, as tables.

    Args:
        capture: The capture.
        start: Names and processes at the start.
        space: Has the names as they were at the start; used in the constructor only.

    Attributes:
        cut_ns: The moment of the start.
        cwds: Working directories by process.
        quiet: Names of the tree that no call can have touched.
    """

    def __init__(self, capture: Capture, start: Start, space: Namespace) -> None:
        # Calls would be kept in memory by a reference to the whole capture.
        self._strings, self._tree = capture.strings, capture.records["tree"]
        self._xattrs = capture.records["xattr"]
        self.cut_ns, self.quiet = start.cut_ns, start.quiet
        devices = {int(spool["dev"]) for spool in capture.meta.get("spools", [])}
        living = start.processes.living()
        gone = _gone(capture, start.cut_ns)
        self._files = [
            (pid, fd, file._replace(node=_NO_NODE), path, space.is_gone(file.node))
            for pid in sorted(living.keys() - gone)
            for fd, file in sorted(living[pid].fds.items())
            if file.key is not None and file.key[0] in devices
            if (path := space.path(file.node)) is not None
        ]
        self._positions = self._positions_in(capture.records["syscall"])
        self.cwds = {
            pid: path
            for pid in living.keys() - gone
            if (node := living[pid].cwd.node) is not None
            if (path := space.path(node)) is not None
        }
        rows = [(node.row, space.path(node)) for node in start.names if node.row >= 0]
        self._names = sorted((row, path) for row, path in rows if path is not None)
        self._missed = [
            (path, node.key, node.children is not None)
            for node in start.names
            if node.row < 0 and not node.doubtful and (path := space.path(node)) is not None
        ]

    def open_files(self, path_id: PathId) -> Columns:
        """Return the descriptors open on the spool."""
        positions = self._positions
        files = [file for _, _, file, _, _ in self._files]
        keys = [file.key or (0, 0) for file in files]
        sizes = np.array([file.size for file in files], np.int64)
        return {
            "pid": np.array([pid for pid, *_ in self._files], np.int32),
            "fd": np.array([fd for _, fd, *_ in self._files], np.int32),
            "path_id": np.array([path_id(path) for *_, path, _ in self._files], np.int64),
            "flags": np.array([file.flags for file in files], np.int64).astype(np.int32),
            "offset": np.array(
                [positions.get((pid, fd), file.position) for pid, fd, file, _, _ in self._files],
                np.int64,
            ),
            "dev": np.array([dev for dev, _ in keys], np.int64),
            "ino": np.array([ino for _, ino in keys], np.int64),
            "obj_mode": np.array([file.mode for file in files], np.int32),
            "description": _renumbered(files),
            "size": np.ma.masked_less(sizes, 0),
            "deleted": np.array([gone for *_, gone in self._files], np.bool_),
        }

    def _positions_in(self, calls: Records) -> dict[tuple[int, int], int]:
        """Return positions of descriptors, as recorded by the first call after the start."""
        inodes = {(pid, fd): file.key for pid, fd, file, _, _ in self._files}
        at_fd = np.array([shape.fd for shape in SHAPES])[calls["call"]]
        wanted = np.isin(calls["pid"], sorted({pid for pid, _ in inodes})) & (at_fd >= 0)
        wanted &= (calls["end_ns"] > self.cut_ns) & (calls["call"] != _FCNTL)
        places = np.flatnonzero(wanted)
        fds = calls["args"][places, at_fd[places]].astype(np.int64) & 0xFFFF_FFFF
        pairs = calls["pid"][places].astype(np.int64) << 32 | fds
        order = np.argsort(calls["end_ns"][places], kind="stable")
        _, first = np.unique(pairs[order], return_index=True)
        found = {}
        for place in places[order[first]].tolist():
            pid, fd = int(calls["pid"][place]), int(calls["args"][place, at_fd[place]])
            key = (int(calls["dev"][place]), int(calls["ino"][place]))
            if inodes.get((pid, fd)) == key and calls["pos"][place] >= 0:
                found[pid, fd] = int(calls["pos"][place])
        return found

    def named(self) -> tuple[Int, Int, list[bytes]]:
        """Return device, inode and path of files that were open, or in the tree and followed."""
        tree = self._tree[[row for row, _ in self._names]]
        keys = np.array([file.key for _, _, file, _, _ in self._files], np.int64).reshape(-1, 2)
        return (
            np.concatenate([keys[:, 0], tree["dev"].astype(np.int64)]),
            np.concatenate([keys[:, 1], tree["ino"].astype(np.int64)]),
            [*(path for *_, path, _ in self._files), *(path for _, path in self._names)],
        )

    def tree(self, path_id: PathId, text_id: PathId, quiet_ids: Int) -> Iterator[Columns]:
        """Yield the spool's names that the walk saw, where they were at the start, in parts.

        Args:
            path_id: Returns the id of a path.
            text_id: Returns the id of a text.
            quiet_ids: Path ids of the rows of ``quiet``.
        """
        rows, paths = self._rows(path_id, quiet_ids)
        for begin in range(0, max(len(rows), 1), PART):
            part = slice(begin, begin + PART)
            tree = self._tree.take(rows[part])
            targets = self._texts(tree["target"], text_id)
            columns: Columns = {
                "path_id": paths[part],
                "target_id": np.ma.array(targets, mask=tree["target"] == 0),
                "extents": _extents(tree),
            }
            for name in ("dev", "ino", "size", "mtime_ns", "btime_ns", "blocks"):
                columns[name] = tree[name].astype(np.int64)
            columns["btime_ns"] = np.ma.masked_equal(columns["btime_ns"], 0)
            for name in ("mode", "uid", "gid", "nlink"):
                columns[name] = tree[name].astype(np.int32)
            yield columns

    def _rows(self, path_id: PathId, quiet_ids: Int) -> tuple[Int, Int]:
        """Return the rows of the walk that are names at the start, in order, and their path ids."""
        followed = np.array([row for row, _ in self._names], np.int64)
        ids = np.array([path_id(path) for _, path in self._names], np.int64)
        rows = np.concatenate([followed, self.quiet.rows])
        order = np.argsort(rows)
        return rows[order], np.concatenate([ids, quiet_ids])[order]

    def _texts(self, numbers: npt.NDArray[np.uint32], text_id: PathId) -> Int:
        """Return the ids of strings of the capture; 0 for string 0."""
        distinct, which = np.unique(numbers, return_inverse=True)
        strings = self._strings
        ids = [text_id(strings[number]) if number else 0 for number in distinct.tolist()]
        return np.array(ids, np.int64)[which.ravel()]

    def xattrs(self, path_id: PathId, text_id: PathId, quiet_ids: Int) -> Columns:
        """Return the extended attributes of the tree's names; arguments as those of ``tree``."""
        records = self._xattrs
        rows, paths = self._rows(path_id, quiet_ids)
        of = records["tree"].astype(np.int64) - 1
        there = np.isin(of, rows)
        records, at = records[there], np.searchsorted(rows, of[there])
        return {
            "path_id": paths[at],
            "name_id": self._texts(records["name"], text_id),
            "length": records["length"].astype(np.int64),
        }

    def missed_names(self, path_id: PathId, is_on_spool: Callable[[bytes], bool]) -> Columns:
        """Return the names that calls used and the walk did not meet."""
        rows = [row for row in self._missed if is_on_spool(row[0])]
        rows = rows if len(self._tree) else []  # without a walk none is missed
        keys = np.array([key or (0, 0) for _, key, _ in rows], np.int64).reshape(-1, 2)
        return {
            "path_id": np.array([path_id(path) for path, *_ in rows], np.int64),
            "dev": np.ma.masked_equal(keys[:, 0], 0),
            "ino": np.ma.masked_equal(keys[:, 1], 0),
            "directory": np.array([directory for *_, directory in rows], np.bool_),
        }


def _extents(tree: Records) -> Any:
    """Return the extents, counted of files with holes only; a file that is one hole has 0."""
    counted = tree["extents"].astype(np.int32)
    hollow = (tree["mode"] & S_IFMT == S_IFREG) & (tree["blocks"] == 0) & (tree["size"] > 0)
    return np.ma.array(counted, mask=(counted == 0) & ~hollow)


def _gone(capture: Capture, cut_ns: int) -> set[int]:
    """Return the processes that ended before the cut and whose number was not reused before it."""
    tasks = capture.records["task"]
    ends = np.isin(tasks["event"], (EXIT, FORK)) & (tasks["tid"] == tasks["pid"])
    tasks = tasks[ends & (tasks["ts_ns"] <= cut_ns)]
    last = {int(t["pid"]): int(t["event"]) for t in tasks[np.argsort(tasks["ts_ns"])]}
    return {pid for pid, event in last.items() if event == EXIT}


def _renumbered(files: list[OpenFile]) -> Any:
    """Return small numbers for descriptions: the recorder's are addresses in the kernel."""
    numbers: dict[int, int] = {}
    return np.array(
        [numbers.setdefault(file.description, len(numbers)) for file in files], np.int64
    )
