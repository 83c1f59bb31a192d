"""The names of the spool as they change: renamed, exchanged, linked, removed, created again.

Names are nodes that know their parent, as in the kernel, so that whoever holds one (an open
descriptor, a working directory) sees it move with every directory above it.
"""

from typing import Any

Key = tuple[int, int]
"""Device and inode number."""


class Aliases:
    """Other names of the spools: bind mounts and symbolic links, as the recorder found them."""

    def __init__(self, meta: dict[str, Any]) -> None:
        pairs = ((a.encode(), t.encode()) for a, t in meta.get("aliases", {}).items())
        self._pairs: list[tuple[bytes, bytes]] = sorted(pairs, key=lambda pair: -len(pair[0]))

    def real(self, path: bytes) -> bytes:
        """Return a path as it reads below the spool's mount point."""
        for alias, target in self._pairs:
            if path == alias or path.startswith(alias + b"/"):
                return target + path[len(alias) :]
        return path


class Node:
    """One name. ``key`` is the object it was last seen to name, None if unknown."""

    __slots__ = ("children", "era", "keep", "key", "lost", "name", "parent", "symlink", "text")

    def __init__(self, name: bytes, parent: "Node | None") -> None:
        self.name = name
        self.parent = parent
        self.children: dict[bytes, Node] | None = None
        self.key: Key | None = None
        self.symlink = False
        self.lost = False
        self.keep = False
        self.text: bytes | None = None
        self.era = -1


class Namespace:
    """All names known, by path and by inode.

    Args:
        repeating: Devices on which inode numbers repeat: each btrfs subvolume has its own.
    """

    def __init__(self, repeating: frozenset[int] = frozenset()) -> None:
        self._root = Node(b"", None)
        self._era = 0
        self._repeating = repeating
        self._by_inode: dict[Key, tuple[Node, ...]] = {}
        self._departed: dict[Key, Node] = {}
        self._repeated: set[Key] = set()
        self._linked: set[Key] = set()

    # -- by path ---------------------------------------------------------------

    def path(self, node: Node) -> bytes | None:
        """Return where a name is now (or was when it was removed); None if nobody knows."""
        if node.era == self._era and node.text is not None:
            return node.text
        parent, text = node.parent, None
        if parent is None:
            text = b"/"
        elif not node.lost and (above := self.path(parent)) is not None:
            text = above.rstrip(b"/") + b"/" + node.name
        node.text, node.era = text, self._era
        return text

    def find(self, path: bytes) -> Node | None:
        """Return the node at an absolute, normal path, or None if it is not known."""
        node = self._root
        for part in path.split(b"/"):
            if part:
                found = node.children.get(part) if node.children else None
                if found is None:
                    return None
                node = found
        return node

    def node(self, path: bytes) -> Node:
        """Return the node at a path, made if it was not known."""
        node = self._root
        for part in path.split(b"/"):
            if part:
                if node.children is None:
                    node.children = {}
                found = node.children.get(part)
                node = found or node.children.setdefault(part, Node(part, node))
        return node

    # -- by inode --------------------------------------------------------------

    def lookup(self, key: Key) -> Node | None:
        """Return a living name of an inode; None if there is none or several objects have it."""
        if key in self._repeated:
            return None
        names = self._by_inode.get(key)
        return names[0] if names else None

    def mapped(self, key: Key) -> Node | None:
        """Return a name of an inode that is mapped, and may have lost its name since."""
        return self.lookup(key) or self._departed.get(key)

    def opened(self, path: bytes, key: Key, *, creates: bool, exclusive: bool) -> Node:
        """Learn from an open (with O_CREAT, O_EXCL) that a path names an inode."""
        node = self.find(path)
        created = exclusive or (creates and node is None)
        node = node or self.node(path)
        if node.key not in (None, key) and not node.symlink:  # replaced by somebody unseen
            self.remove(node)
            node = self.node(path)
        self.bind(node, key, created=created)
        return node

    def listed(self, path: bytes, key: Key, *, links: int, symlink: bool, directory: bool) -> None:
        """Take a name from the walk of the spool."""
        node = self.node(path)
        node.keep = True
        if directory and node.children is None:
            node.children = {}
        if links > 1 and not directory:
            self._linked.add(key)
        self.bind(node, key)
        node.symlink = symlink

    def held(self, path: bytes, key: Key) -> Node:
        """Take the name of an open descriptor from the snapshot."""
        node = self.node(path)
        if node.key not in (None, key):
            return self.nameless(path, key)
        if node.key is None:
            self.bind(node, key)
        node.keep = True
        return node

    def nameless(self, path: bytes, key: Key) -> Node:
        """Take the last name of an object that has none any more."""
        above, _, name = path.rpartition(b"/")
        node = Node(name, self.node(above))
        node.key, node.keep = key, True
        self._departed.setdefault(key, node)
        return node

    def bind(self, node: Node, key: Key, *, created: bool = False) -> None:
        """Learn that a name is one of an inode's; ``created``: it is its first one."""
        if node.symlink or not key[1]:
            return
        if node.key is not None and node.key != key:
            self._unbind(node)
        names = tuple(n for n in self._by_inode.get(key, ()) if n is not node)
        node.key = key
        self._departed.pop(key, None)
        if names and key not in self._linked:
            if key[0] in self._repeating:
                self._repeated.add(key)
            elif created:  # the number was free: those names went unseen
                for name in names:
                    name.key = None
                names = ()
        self._by_inode[key] = (node, *names)

    def _unbind(self, node: Node) -> None:
        key = node.key
        if key is None:
            return
        names = tuple(n for n in self._by_inode.get(key, ()) if n is not node)
        if len(names) == 1:
            self._repeated.discard(key)
        if names:
            self._by_inode[key] = names
        else:
            self._by_inode.pop(key, None)
            self._linked.discard(key)
            if node.keep:
                self._departed[key] = node

    # -- changes ---------------------------------------------------------------

    def made_directory(self, path: bytes) -> None:
        """A directory was made."""
        self._made(path).children = {}

    def made_symlink(self, path: bytes) -> None:
        """A symbolic link was made."""
        self._made(path).symlink = True

    def _made(self, path: bytes) -> Node:
        if (old := self.find(path)) is not None:
            self.remove(old)
        return self.node(path)

    def link(self, key: Key | None, path: bytes) -> None:
        """An object got one more name."""
        node = self._made(path)
        if key is not None:
            self._linked.add(key)
            self.bind(node, key)

    def remove(self, node: Node) -> None:
        """A name is gone; who holds it open still knows it."""
        parent = node.parent
        if parent is not None and parent.children and parent.children.get(node.name) is node:
            del parent.children[node.name]
        self._unbind(node)

    def removed(self, path: bytes) -> None:
        """A path was unlinked."""
        if (node := self.find(path)) is not None:
            self.remove(node)

    def lose(self, path: bytes) -> None:
        """A name was renamed to where nobody knows."""
        if (node := self.find(path)) is not None:
            self.remove(node)
            node.lost = True
            self._era += 1

    def rename(self, old: bytes, new: bytes) -> None:
        """A name moved, over whatever was there, with all below it."""
        if new == old or new.startswith(old + b"/"):
            return
        source, target = self.node(old), self.find(new)
        if target is not None:
            if source.key is not None and source.key == target.key and source.key in self._linked:
                return  # rename(2): two names of one file both stay
            self.remove(target)
            # Only an empty directory can be replaced: these were listed after the rename.
            for name, child in (target.children or {}).items():
                source.children = source.children or {}
                if name not in source.children:
                    child.parent, source.children[name] = source, child
        self._move(source, new)

    def exchange(self, one: bytes, other: bytes) -> None:
        """Two names were exchanged (RENAME_EXCHANGE)."""
        first, second = self.node(one), self.node(other)
        if first is not second:
            self._move(first, other)
            self._move(second, one)

    def _move(self, node: Node, path: bytes) -> None:
        old, _, name = node.parent, *path.rpartition(b"/")[1:]
        if old is not None and old.children and old.children.get(node.name) is node:
            del old.children[node.name]
        parent = self.node(path[: -len(name) - 1])
        parent.children = parent.children or {}
        node.name, node.parent, node.text = name, parent, None
        parent.children[name] = node
        if node.children is not None:
            self._era += 1
