"""The state at the start: what the snapshot read at different times, brought to one moment.

Descriptors and working directories are read before the cut and brought forward by the calls
that returned until then. The walk of the tree comes after it and takes long; the calls made
meanwhile are followed, and every name that no call touched before the walk met it was so from the
start, wherever the directory was by then. What calls did touch, they tell of themselves.
"""

from dataclasses import dataclass

import numpy as np

from spoolscope.tracers.effects import S_IFDIR, S_IFLNK, S_IFMT
from spoolscope.tracers.lives import CUT, SEEN
from spoolscope.tracers.namespace import Namespace
from spoolscope.tracers.nodes import Key, Node, Seen
from spoolscope.tracers.processes import Processes
from spoolscope.tracers.quiet import Quiet
from spoolscope.traces.capture import Capture

# Times of birth are those of the last timer tick.
TICK_NS = 10_000_000


@dataclass
class Start:
    """Names and processes at the start.

    Attributes:
        cut_ns: The moment.
        names: Every name that was followed and existed, with its record of the walk (or -1).
        processes: The processes as they were.
        quiet: The names of the walk that were not followed.
    """

    cut_ns: int
    names: list[Node]
    processes: Processes
    quiet: Quiet


def cut_of(capture: Capture) -> int:
    """Return the moment that the snapshot is brought to; where none was noted, the beginning.

    Later segments have their snapshot before they begin.
    """
    tasks = capture.records["task"]
    cuts = tasks["ts_ns"][tasks["event"] == CUT]
    return max(int(cuts.min()) if len(cuts) else 0, capture.start_mono_ns)


class Finding:
    """Finds out the start while the calls made during the snapshot are followed.

    Args:
        capture: The capture.
        space: Names, followed through the calls.
        processes: Processes, likewise.

    Attributes:
        cut_ns: The moment that everything is brought to.
        end_ns: When the snapshot was whole.
        tree: Records of the walk that are to be told by ``row``, one after the other.
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
        """The moment has come."""
        self._space.start()
        self._at_cut = self._processes.copy()

    def row(self, row: np.void) -> None:
        """The walk saw a name, or all of a directory; the next of ``tree``."""
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
        # A directory made since may have the number of what was there at the start.
        if not seen.born and not (node is not None and node.born):
            self._row_of.setdefault(seen.key, seen.row)

    def _above(self, row: int) -> Node | None:
        """Return the directory that a row, from 1, shows."""
        node = self._nodes[row - 1]
        while node is not None and node.same is not None:
            node = node.same
        return node

    def found(self) -> Start:
        """Go back to the start and return it."""
        names = self._space.rewind()
        taken = {node.row for node in names}
        for node in names:
            if node.row < 0 and node.key is not None:  # met under another name that it got since
                row = self._row_of.get(node.key)
                # One that shows another name, too, shows the object that had its number before.
                if row is not None and (row not in taken or self._tree["nlink"][row] > 1):
                    node.row = row
        self._quiet.settle(self._places(names))
        return Start(self.cut_ns, names, self._at_cut or self._processes.copy(), self._quiet)

    def _places(self, names: list[Node]) -> dict[int, bytes]:
        """Return where directories were that hold names which were not followed."""
        there = {id(node) for node in names}
        found = ((row, self._above(row + 1)) for row in self._quiet.above.tolist())
        places = ((row, node) for row, node in found if node is not None and id(node) in there)
        paths = ((row, self._space.path(node)) for row, node in places)
        return {row: path for row, path in paths if path is not None}
