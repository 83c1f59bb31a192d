"""Names as nodes that know their parent, as in the kernel."""

from typing import NamedTuple

Key = tuple[int, int]
"""Device and inode number."""


class Node:
    """One name.

    Attributes:
        key: The object that it was last seen to name, None if unknown.
        assumed: The key is known from a working directory only.
        same: The node that turned out to be the same name.
        origin: The directory and name that it had at the start; None if it is newer.
        gone: Nodes that calls removed from the directory, by name.
        born: The directory was made after the start.
        listed_ns: Time at which the walk had met all its names; 0 if it has not.
        doubtful: The call that showed it may have made it.
        way: If it lies on another filesystem, mounted below a spool: the name that led there.
        row: The record of the walk that shows it, seen at ``seen_ns``; -1 if there is none.
        number: Id of the path that it was last found to have, -1 if that may have changed.
    """

    __slots__ = (
        "assumed",
        "born",
        "children",
        "doubtful",
        "era",
        "gone",
        "keep",
        "key",
        "listed_ns",
        "lost",
        "name",
        "number",
        "origin",
        "parent",
        "row",
        "same",
        "seen_ns",
        "symlink",
        "text",
        "way",
    )

    def __init__(self, name: bytes, parent: "Node | None") -> None:
        self.name = name
        self.parent = parent
        self.children: dict[bytes, Node] | None = None
        self.key: Key | None = None
        self.symlink = False
        self.lost = False
        self.keep = False
        self.text: bytes | None = None
        self.way: bytes | None = None
        self.era = self.number = -1
        # Used while the state at the start is determined, see start.py.
        self.origin: tuple[Node, bytes] | None = None
        self.gone: dict[bytes, Node] | None = None
        self.assumed = self.born = False
        self.listed_ns = 0
        self.doubtful = False
        self.row = -1
        self.seen_ns = 0
        self.same: Node | None = None


def beyond(way: bytes) -> Node:
    """Return a name on another filesystem, mounted below a spool, with no place in the namespace.

    Args:
        way: The name that led there.
    """
    node = Node(b"", Node(b"", None))
    node.lost, node.way = True, way
    return node


class Seen(NamedTuple):
    """One name that the walk saw: record number ``row``, at ``ts_ns``.

    ``born``: it was made after the start, by its time of birth. ``perhaps_born``: its time of birth
    is too coarse to decide.
    """

    key: Key
    row: int
    ts_ns: int
    links: int
    directory: bool
    symlink: bool
    born: bool
    perhaps_born: bool
