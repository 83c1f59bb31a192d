"""Names as nodes that know their parent, as in the kernel."""

from typing import NamedTuple

Key = tuple[int, int]
"""Device and inode number."""


class Node:
    """One name.

    Attributes:
        key: The object it was last seen to name, None if unknown.
        assumed: Nothing but a working directory told the key.
        same: It turned out to be that name.
        origin: The directory and name that it had at the start; None if it came later.
        gone: What calls took away from it, by name.
        born: The directory was made after the start.
        listed_ns: When the walk had met all its names; 0: it has not.
        doubtful: The call that told of it may have made it.
        way: Of what lies on another filesystem, mounted below a spool: the name that led there.
        row: The record of the walk that shows it, seen then at ``seen_ns``; -1 for none.
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
        self.era = -1
        # Of use while the start is found out, see start.py.
        self.origin: tuple[Node, bytes] | None = None
        self.gone: dict[bytes, Node] | None = None
        self.assumed = self.born = False
        self.listed_ns = 0
        self.doubtful = False
        self.row = -1
        self.seen_ns = 0
        self.same: Node | None = None


def beyond(way: bytes) -> Node:
    """Return a name on another filesystem, mounted below a spool: it has no place among the others.

    Args:
        way: The name that led there.
    """
    node = Node(b"", Node(b"", None))
    node.lost, node.way = True, way
    return node


class Seen(NamedTuple):
    """What the walk saw: ``row`` of its records, at ``ts_ns``.

    ``born``: made after the start, by its time of birth; ``perhaps_born``: that is too coarse
    to tell.
    """

    key: Key
    row: int
    ts_ns: int
    links: int
    directory: bool
    symlink: bool
    born: bool
    perhaps_born: bool
