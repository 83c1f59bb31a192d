"""Names of the walk that no call can have touched: a spool may have millions of them.

At the start they were as the walk met them, so they stay rows of columns. Only names that a call,
a descriptor or a mapping may lead to become nodes (namespace.py), with the directories above them.
"""

from collections.abc import Callable, Iterator, Mapping

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from spoolscope.traces.abi import S_IFDIR, S_IFMT
from spoolscope.traces.capture import Capture, Records
from spoolscope.traces.concealed import holds, is_in_mailbox

Int = npt.NDArray[np.int64]
Bool = npt.NDArray[np.bool_]
PART = 1 << 17
_NOTHING, _SLASH = (pa.scalar(text, pa.large_binary()) for text in (b"", b"/"))
_DELETED = b" (deleted)"
_MIXER = np.uint64(0x9E37_79B9_7F4A_7C15)  # for hashes: a collision only costs time
_TEXTS = {"task": ("path", "root"), "open_file": ("path",), "mapping": ("path",),
          "syscall": ("path", "path2"), "prelude": ("path", "path2")}  # fmt: skip


class Quiet:
    """Rows of the walk, divided into those that are followed as nodes and the others.

    Args:
        capture: The capture.
        born_ns: Files made after this time (CLOCK_REALTIME) are followed.

    Attributes:
        followed: Rows that are to be followed, in order.
        above: Followed rows that are directories of rows that are not followed.
        rows: The rows that are not followed and existed at the start, in order; empty before
            ``settle``.
    """

    def __init__(self, capture: Capture, born_ns: int) -> None:
        self._tree, self._strings = capture.records["tree"], capture.strings
        self._parent = self._tree["parent"].astype(np.int64) - 1
        followed = _followed(capture, self._parent, born_ns)
        self.followed = np.flatnonzero(followed)
        self._apart = np.flatnonzero(~followed & (self._tree["ino"] > 0))
        above = self._parent[self._apart]
        self.above = np.unique(above[followed[above]])
        self.rows = np.zeros(0, np.int64)
        self._levels: list[Int] = []
        self._places: Mapping[int, bytes] = {}
        self._place_of = np.zeros(0, np.int32)

    def settle(self, places: Mapping[int, bytes]) -> None:
        """Set the paths of directories of ``above`` at the start; others were made later."""
        self._places = places
        self._place_of = np.full(len(self._tree), -1, np.int32)
        self._place_of[list(places)] = list(places)
        self._levels, rest = [], self._apart
        while True:
            there = self._place_of[self._parent[rest]] >= 0
            level, rest = rest[there], rest[~there]
            if not len(level):
                break
            self._place_of[level] = self._place_of[self._parent[level]]
            self._levels.append(level)
        if self._levels:
            self.rows = np.sort(np.concatenate(self._levels))

    def by_place(self, value: Callable[[bytes], int]) -> Int:
        """Return for each row the value of a function of the directory of ``above`` over it."""
        values = np.zeros(len(self._tree) if self._places else 0, np.int64)
        for row, path in self._places.items():
            values[row] = value(path)
        return values[self._place_of[self.rows]]

    def texts(
        self,
        prefix: Callable[[bytes], bytes],
        component: Callable[[bytes], bytes],
        chosen: Bool | None = None,
    ) -> Iterator[pa.Array]:
        """Yield a text for each row, in parts of PART: that of its directory and of its name.

        Only directories with rows below them are in memory all together.

        Args:
            prefix: Returns the prefix of names in a directory of ``above``, given its path.
            component: Returns the text of a name.
            chosen: Rows to yield; all without it.
        """
        rows = self.rows if chosen is None else self.rows[chosen]
        if not len(rows):
            return
        holds = np.zeros(len(self._tree), np.bool_)
        holds[self._parent[self.rows]] = True
        at = np.full(len(self._tree), -1, np.int64)
        at[list(self._places)] = np.arange(len(self._places))
        directories = pa.array([prefix(path) for path in self._places.values()], pa.large_binary())
        for level in self._levels:
            holding = level[holds[level]]
            names = self._joined(directories, at, holding, component)
            at[holding] = len(directories) + np.arange(len(holding))
            names = pc.binary_join_element_wise(names, _NOTHING, _SLASH)
            directories = pa.concat_arrays([directories, names])
        for begin in range(0, len(rows), PART):
            yield self._joined(directories, at, rows[begin : begin + PART], component)

    def _joined(
        self, directories: pa.Array, at: Int, rows: Int, component: Callable[[bytes], bytes]
    ) -> pa.Array:
        """Return the texts of rows whose directories' texts are at places of an array."""
        numbers, which = np.unique(self._tree["path"][rows], return_inverse=True)
        texts = [component(self._strings[number]) for number in numbers.tolist()]
        names = pa.array(texts, pa.large_binary()).take(pa.array(which))
        above = directories.take(pa.array(at[self._parent[rows]]))
        return pc.binary_join_element_wise(above, names, _NOTHING)

    def telling(self, *, all_of_them: bool) -> Iterator[bytes]:
        """Yield a choice of paths with every name below every kind of directory, and every mailbox.

        Args:
            all_of_them: Yield all paths.
        """
        chosen = None if all_of_them else self._telling()
        for part in self.texts(lambda path: path.rstrip(b"/") + b"/", bytes, chosen):
            yield from part.to_pylist()

    def _telling(self) -> Bool:
        numbers, name = np.unique(self._tree["path"], return_inverse=True)
        texts = [self._strings[number] for number in numbers.tolist()]
        holding = np.array([holds(text) for text in texts], np.int64)[name]
        for row, path in self._places.items():
            holding[row] = holds(path.rpartition(b"/")[2])
        parent = self._parent[self.rows]
        _, first = np.unique(name[self.rows] * 4 + holding[parent], return_index=True)
        chosen = np.zeros(len(self.rows), np.bool_)
        chosen[first] = True
        inside = np.array([is_in_mailbox(text) for text in texts], np.bool_)[name[self.rows]]
        _, first = np.unique(parent[inside], return_index=True)
        chosen[np.flatnonzero(inside)[first]] = True
        return chosen


def _followed(capture: Capture, parent: Int, born_ns: int) -> Bool:
    """Return for each row of the walk whether it has to be followed."""
    tree = capture.records["tree"]
    named = tree["ino"] > 0
    # Rows in an order that no walk makes (a directory after its content) are followed, too.
    odd = (parent < 0) | (parent >= np.arange(len(tree)))
    followed = odd | np.isin(tree["ino"], _inodes(capture))
    followed |= (tree["btime_ns"] > born_ns) & (tree["btime_ns"] != 0)
    followed |= _repeated(tree["parent"].astype(np.uint64) << 32 | tree["path"])
    followed |= _in_directories_met_again(tree, parent, odd)
    followed &= named
    at = np.flatnonzero(followed & ~odd)
    while len(at):  # those above
        above = np.unique(parent[at])
        at = above[~followed[above]]
        followed[at] = True
        at = at[~odd[at]]
    rest = np.flatnonzero(named & ~followed)
    if len(rest):
        words = _words(capture)
        numbers, name = np.unique(tree["path"][rest], return_inverse=True)
        hits = np.array([capture.strings[number] in words for number in numbers.tolist()])
        # Names that a call uses, below these directories.
        _descend(followed, rest[hits[name]], parent)
    listings = np.flatnonzero(~named)
    followed[listings] = odd[listings] | followed[parent[listings].clip(0)]
    return followed


def _inodes(capture: Capture) -> npt.NDArray[np.uint64]:
    """Return the inode numbers in all records other than those of the walk."""
    numbers = [
        pa.array(rows[member]).unique().to_numpy()
        for kind, rows in capture.records.items()
        if kind != "tree"
        for member in rows.dtype.names or ()
        if member.endswith(("ino", "ino2"))
    ]
    return np.unique(np.concatenate(numbers)) if numbers else np.zeros(0, np.uint64)


def _descend(marked: Bool, rows: Int, parent: Int) -> None:
    """Mark the rows whose directories are marked, or become marked by this."""
    there = np.ones(1, np.bool_)
    while there.any():
        there = marked[parent[rows]]
        marked[rows[there]] = True
        rows = rows[~there]


def _in_directories_met_again(tree: Records, parent: Int, odd: Bool) -> Bool:
    """Return which rows lie below a directory that moved during the walk and was met twice."""
    directories = np.flatnonzero(tree["mode"] & S_IFMT == S_IFDIR)
    met = tree[directories]
    keys = met["ino"] * _MIXER ^ met["btime_ns"].astype(np.uint64) ^ met["dev"].astype(np.uint64)
    below = np.zeros(len(tree), np.bool_)
    below[directories[_repeated(keys)]] = True
    if below.any():
        _descend(below, np.flatnonzero(~below & ~odd), parent)
    return below


def _repeated(keys: npt.NDArray[np.uint64]) -> Bool:
    """Return which of the keys occur more than once."""
    order = np.argsort(keys, kind="stable")
    same = keys[order][1:] == keys[order][:-1]
    twice = np.zeros(len(keys), np.bool_)
    twice[order[1:][same]] = twice[order[:-1][same]] = True
    return twice


def _words(capture: Capture) -> set[bytes]:
    """Return the names in the paths of all records other than those of the walk."""
    numbers = [
        np.unique(capture.records[kind][member])
        for kind, members in _TEXTS.items()
        if kind in capture.records
        for member in members
    ]
    texts = [capture.strings[number] for number in np.unique(np.concatenate(numbers)).tolist()]
    mounts = [str(spool["mount"]).encode() for spool in capture.meta.get("spools", [])]
    aliases = capture.meta.get("aliases", {})
    mounted = [place for one in capture.meta.get("mounted_below", []) for place in one["places"]]
    led_to = (*aliases.keys(), *aliases.values(), *(path for pair in mounted for path in pair))
    others = [str(path).encode() for path in led_to if path is not None]
    words: set[bytes] = set()
    for text in (*texts, *mounts, *others):
        words.update(text.split(b"/"))
        words.add(text.removesuffix(_DELETED).rpartition(b"/")[2])
    return words
