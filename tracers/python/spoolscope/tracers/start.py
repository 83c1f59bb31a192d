"""The state at the start: the snapshot is read at different times and brought to one moment.

Descriptors and working directories are read before the cut (the start), and updated by the calls
that returned before it. The walk of the tree comes after the cut and takes long; the calls made
during it are followed. A name that no call touched before the walk met it was the same at the
start, wherever its directory was by then. The other names follow from the calls.
"""

from dataclasses import dataclass

import numpy as np

from spoolscope.tracers.lives import CUT, SEEN
from spoolscope.tracers.namespace import Namespace
from spoolscope.tracers.nodes import Key, Node, Seen
from spoolscope.tracers.processes import Processes
from spoolscope.tracers.quiet import Quiet
from spoolscope.traces.abi import S_IFDIR, S_IFLNK, S_IFMT
from spoolscope.traces.capture import Capture

# Times of birth are rounded down to a timer tick.
TICK_NS = 10_000_000


@dataclass
class Start:
    """Names and processes at the start.

    Attributes:
        cut_ns: Time of the start.
        names: Every name that was followed and existed, with its record of the walk (or -1).
        processes: The processes at the start.
        quiet: The names of the walk that were not followed.
    """

    cut_ns: int
    names: list[Node]
    processes: Processes
    quiet: Quiet


def cut_of(capture: Capture) -> int:
    """Return the moment to which the snapshot is brought: the recorded cut, or the beginning.

    The snapshot of later segments is older than their beginning.
    """
    tasks = capture.records["task"]
    cuts = tasks["ts_ns"][tasks["event"] == CUT]
    return max(int(cuts.min()) if len(cuts) else 0, capture.start_mono_ns)


class Finding:
    """Determines the state at the start while the calls made during the snapshot are followed.

    Args:
        capture: The capture.
        space: Names, followed through the calls.
        processes: Processes, likewise.

    Attributes:
        cut_ns: The moment to which the state is brought.
        end_ns: Time at which the snapshot was complete.
        tree: Records of the walk that are to be given to ``row``, one after the other.
    """

    def __init__(self, capture: Capture, space: Namespace, processes: Processes) -> None:
        self._strings = capture.strings
        self._tree = capture.records["tree"]
        self._space, self._processes = space, processes
        self.cut_ns = cut_of(capture)
        tasks = capture.records["task"]
        seen = tasks[(tasks["event"] == SEEN) & (tasks["path"] > 0)]
        found = (seen, capture.records["open_file"], self._tree)
        self.end_ns = max(self.cut_ns, *(int(rows["ts_ns"].max(initial=0)) for rows in found))
        self._real_ns = self.cut_ns + capture.start_real_ns - capture.start_mono_ns
        self._at_cut: Processes | None = None
        self._quiet = Quiet(capture, self._real_ns - TICK_NS)
        self.tree = self._tree[self._quiet.followed]
        self._next = iter(self._quiet.followed.tolist())
        self._nodes: dict[int, Node | None] = {}
        self._row_of: dict[Key, int] = {}

    def cut(self) -> None:
        """Take the state at the cut; called when its time has come."""
        self._space.start()
        self._at_cut = self._processes.copy()

    def row(self, row: np.void) -> None:
        """Add the next record of ``tree``: a name that the walk saw, or the end of a directory."""
        number = next(self._next)
        if not row["ino"]:
            if (directory := self._above(int(row["parent"]))) is not None:
                self._space.listed(directory, int(row["ts_ns"]))
            self._nodes[number] = None
            return
        kind, born = int(row["mode"]) & S_IFMT, int(row["btime_ns"])
        seen = Seen(
            key=(int(row["dev"]), int(row["ino"])),
            row=number,
            ts_ns=int(row["ts_ns"]),
            links=int(row["nlink"]),
            directory=kind == S_IFDIR,
            symlink=kind == S_IFLNK,
            born=born > self._real_ns,
            perhaps_born=born > self._real_ns - TICK_NS,
        )
        name, parent = self._strings[row["path"]], int(row["parent"])
        if parent:
            above = self._above(parent)
        else:
            path, _, name = name.rpartition(b"/")
            above = self._space.node(path)
        node = self._space.observed(above, name, seen) if above is not None else None
        self._nodes[number] = node
        # A newer directory may have the inode number of a file that existed at the start.
        if not seen.born and not (node is not None and node.born):
            self._row_of.setdefault(seen.key, seen.row)

    def _above(self, row: int) -> Node | None:
        """Return the directory of a row; rows count from 1."""
        node = self._nodes[row - 1]
        while node is not None and node.same is not None:
            node = node.same
        return node

    def found(self) -> Start:
        """Go back to the start and return its state."""
        names = self._space.rewind()
        taken = {node.row for node in names}
        for node in names:
            if node.row < 0 and node.key is not None:  # met under a newer name
                row = self._row_of.get(node.key)
                # If a row also shows another name, but its file has only one, it shows the object
                # that had the inode number before.
                if row is not None and (row not in taken or self._tree["nlink"][row] > 1):
                    node.row = row
        self._quiet.settle(self._places(names))
        return Start(self.cut_ns, names, self._at_cut or self._processes.copy(), self._quiet)

    def _places(self, names: list[Node]) -> dict[int, bytes]:
        """Return the paths at the start of the directories of names that were not followed."""
        there = {id(node) for node in names}
        found = ((row, self._above(row + 1)) for row in self._quiet.above.tolist())
        places = ((row, node) for row, node in found if node is not None and id(node) in there)
        paths = ((row, self._space.path(node)) for row, node in places)
        return {row: path for row, path in paths if path is not None}
