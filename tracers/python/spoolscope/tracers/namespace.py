"""The names of the spool as calls change them: rename, exchange, link, remove, create again.

Names are nodes that know their parent, as in the kernel, so that a name which an open descriptor
or a working directory holds moves with every directory above it.
"""

from collections.abc import Iterator

from spoolscope.tracers.nodes import Key, Node, Seen


class Namespace:
    """All known names, by path and by inode.

    Args:
        repeating: Devices on which inode numbers repeat: each btrfs subvolume has its own.

    Attributes:
        era: Changes when a directory moves: paths found in another era are to be found again.
    """

    def __init__(self, repeating: frozenset[int] = frozenset()) -> None:
        self._root = Node(b"", None)
        self.era = 0
        self._repeating = repeating
        # The newest name of each inode, and the others, the newest last.
        self._newest: dict[Key, Node] = {}
        self._older: dict[Key, dict[Node, None]] = {}
        self._departed: dict[Key, Node] = {}
        self._repeated: set[Key] = set()
        self._linked: set[Key] = set()
        self._tracking, self._started = True, False
        self._departed_at_start: dict[Key, Node] = {}
        self._at_start: list[Node] = []
        # Directories by path, so that a name is found in one step; empty after one has moved.
        self._directories: dict[bytes, Node] = {}
        self.since_ns = 0  # start of the call whose effect is being applied

    # -- by path ---------------------------------------------------------------

    def path(self, node: Node) -> bytes | None:
        """Return the path of a name (or its path when it was removed); None if unknown."""
        if node.same is not None:
            return self.path(node.same)
        if node.era == self.era and node.text is not None:
            return node.text
        parent, text = node.parent, None
        if parent is None:
            text = b"/"
        elif not node.lost and (above := self.path(parent)) is not None:
            text = above.rstrip(b"/") + b"/" + node.name
        node.text, node.era, node.number = text, self.era, -1
        return text

    def find(self, path: bytes) -> Node | None:
        """Return the node at an absolute, normal path, or None if it is not known."""
        above, _, name = path.rpartition(b"/")
        if name:
            directory = self._directories.get(above) or self._directory(above)
            return directory.children.get(name) if directory and directory.children else None
        return self._walked(path)

    def _directory(self, path: bytes) -> Node | None:
        """Return the node at a path, and remember it if there are names below it."""
        node = self._walked(path)
        if node is not None and node.children:
            self._directories[path] = node
        return node

    def _walked(self, path: bytes) -> Node | None:
        """Return the node at a path, name by name from the root."""
        node = self._root
        for part in path.split(b"/"):
            if part:
                found = node.children.get(part) if node.children else None
                if found is None:
                    return None
                node = found
        return node

    def is_gone(self, node: Node) -> bool:
        """Return whether an object has lost the name under which it is known."""
        while node.same is not None:
            node = node.same
        path = self.path(node)
        return path is None or self.find(path) is not node

    def node(self, path: bytes) -> Node:
        """Return the node at a path; make it if it is not known."""
        above, _, name = path.rpartition(b"/")
        directory = self._directories.get(above)
        if name and directory is not None:
            found = directory.children.get(name) if directory.children else None
            return found or self.discover(directory, name)
        node = directory = self._root
        for part in path.split(b"/"):
            if part:
                directory = node
                found = node.children.get(part) if node.children else None
                node = found or self.discover(node, part)
        if name:
            self._directories[above] = directory
        return node

    def discover(self, parent: Node, name: bytes, *, met: bool = False) -> Node:
        """Add a name that no record showed so far: it existed at the start.

        It is newer than the start if the walk had listed the directory before the call that uses
        the name. ``met``: the walk itself shows the name.
        """
        node = Node(name, parent)
        if parent.children is None:
            parent.children = {}
        parent.children[name] = node
        new = parent.born or (not met and 0 < parent.listed_ns < self.since_ns)
        if self._started and not new and not (parent.gone and name in parent.gone):
            node.origin = (parent, name)
            self._at_start.append(node)
        return node

    # -- the start -------------------------------------------------------------

    def start(self) -> None:
        """Take the present state as the state at the start."""
        self._started = True
        self._departed_at_start = dict(self._departed)
        for node in self._below(self._root):
            if node.parent is not None:
                node.origin, node.doubtful = (node.parent, node.name), False
                self._at_start.append(node)

    def observed(self, parent: Node, name: bytes, seen: Seen) -> Node | None:
        """Add what the walk saw under a name of a directory; return its node if it is known.

        A name that no call touched was the same at the start. If a call touched it, the call
        determines the name; the walk then only gives the object, wherever that is by now.
        """
        child = parent.children.get(name) if parent.children else None
        if child is None:
            gone = parent.gone.get(name) if parent.gone else None
            if parent.born or gone is not None:
                return self._shown(seen, gone)
            child = self.discover(parent, name, met=True)
            child.seen_ns = seen.ts_ns
        elif child.key not in (None, seen.key) and not child.assumed:
            return self._shown(seen, None)
        if seen.born or (child.doubtful and seen.perhaps_born):
            child.origin, child.born = None, seen.directory
        if seen.directory and child.children is None:
            child.children = {}
        if seen.links > 1 and not seen.directory:
            self._linked.add(seen.key)
        if child.row < 0 or child.key != seen.key:  # the first look is the nearest to the start
            child.row = seen.row
        self.bind(child, seen.key)
        child.symlink, child.keep = seen.symlink, True
        return child

    def listed(self, directory: Node, ts_ns: int) -> None:
        """Note that the walk has met all names of a directory: others were made later."""
        directory.listed_ns = directory.listed_ns or ts_ns
        for child in (directory.children or {}).values():
            if child.doubtful and child.row < 0 and child.origin == (directory, child.name):
                child.origin = None

    def _shown(self, seen: Seen, gone: Node | None) -> Node | None:
        """Add an object that the walk met under a name that, by the calls, it does not have."""
        node = self.lookup(seen.key)
        if node is None and gone is not None and gone.key is None and not seen.born:
            node = gone  # the call that removed it was just returning
            if self.find(self.path(node) or b"") is node:
                self.bind(node, seen.key)
            node.key = seen.key
            if seen.directory and node.children is None:
                node.children = {}
        if node is not None and node.row < 0:
            node.row, node.symlink = seen.row, seen.symlink
        return node

    def rewind(self) -> list[Node]:
        """Restore the state at the start, as far as it is known, and return its names."""
        for node in [self._root, *self._at_start]:
            node.children = {} if node.children is not None else None
            node.gone, node.born, node.lost = None, False, False
            node.seen_ns = node.listed_ns = 0
        self._directories.clear()
        for node in self._at_start:
            if node.origin is not None:
                parent, name = node.origin
                node.parent, node.name, node.text = parent, name, None
                parent.children = parent.children or {}
                parent.children[name] = node
        self._tracking = self._started = False
        self._at_start, self.era = [], self.era + 1
        self._newest, self._older = {}, {}
        self._repeated, self._departed = set(), self._departed_at_start
        names = list(self._below(self._root))  # without those in directories made later
        for node in reversed([self._root, *names]):  # the first one met counts as the newest
            if (key := node.key) is not None:
                self._put(key, node)
                if key in self._older and key[0] in self._repeating and key not in self._linked:
                    self._repeated.add(key)
        return names

    def _below(self, node: Node) -> Iterator[Node]:
        pending = [node]
        while pending:
            children = pending.pop().children or {}
            yield from children.values()
            pending.extend(children.values())

    # -- by inode --------------------------------------------------------------

    def lookup(self, key: Key) -> Node | None:
        """Return a present name of an inode; None if it has none or several objects have it."""
        if key in self._repeated:
            return None
        return self._newest.get(key)

    def mapped(self, key: Key) -> Node | None:
        """Return a name of an inode that is mapped, and may have lost its name since."""
        return self.lookup(key) or self._departed.get(key)

    def opened(self, path: bytes, key: Key, *, creates: bool, exclusive: bool) -> Node:
        """Note that an open (with O_CREAT, O_EXCL) of a path returned an inode."""
        node = self.find(path)
        created = exclusive or (creates and node is None)
        if node is None:
            node = self._new(path) if exclusive else self.node(path)
            node.doubtful = not exclusive and creates
        elif exclusive and node.seen_ns > self.since_ns:
            node.origin = None  # the walk saw it after it was made
        if node.key not in (None, key) and not node.symlink:  # replaced by a call not recorded
            self.remove(node)
            node = self._new(path)
        self.bind(node, key, created=created)
        return node

    def held(self, path: bytes, key: Key) -> Node:
        """Take the name of an open descriptor from the snapshot."""
        node = self.node(path)
        if node.key not in (None, key):
            return self.nameless(path, key)
        if node.key is None:
            self.bind(node, key)
        node.keep = True
        return node

    def unnamed(self, key: Key) -> Node:
        """Return a node for an object whose name is not known yet; see Node.same."""
        node = Node(b"", self._root)
        node.key, node.lost = key, True
        return node

    def nameless(self, path: bytes, key: Key) -> Node:
        """Add an object that has no name any more under its last name."""
        above, _, name = path.rpartition(b"/")
        node = Node(name, self.node(above))
        node.key, node.keep = key, True
        self._departed.setdefault(key, node)
        return node

    def bind(self, node: Node, key: Key, *, created: bool = False) -> None:
        """Note that a name belongs to an inode; ``created``: it is the first name."""
        if node.symlink or not key[1]:
            return
        if node.key is not None and node.key != key:
            self._unbind(node)
        node.key, node.assumed = key, False
        if self._departed:
            self._departed.pop(key, None)
        self._put(key, node)
        if key in self._older and key not in self._linked:
            if key[0] in self._repeating:
                self._repeated.add(key)
            elif created:  # the number was free: the removal of those names was not recorded
                for name in self._older.pop(key):
                    name.key = None

    def _put(self, key: Key, node: Node) -> None:
        """Make a name the newest one of an inode."""
        newest = self._newest.setdefault(key, node)
        if newest is not node:
            older = self._older.setdefault(key, {})
            older.pop(node, None)
            older[newest] = None
            self._newest[key] = node

    def _unbind(self, node: Node) -> None:
        key = node.key
        if key is None:
            return
        older = self._older.get(key)
        if older is not None:
            if self._newest[key] is node:
                self._newest[key] = older.popitem()[0]
            else:
                older.pop(node, None)
            if not older:
                del self._older[key]
                self._repeated.discard(key)
        elif self._newest.get(key, node) is node:  # it was the last one
            self._newest.pop(key, None)
            self._linked.discard(key)
            if node.keep:
                self._departed[key] = node

    # -- changes ---------------------------------------------------------------

    def made_directory(self, path: bytes) -> None:
        """Add a directory that was made."""
        node = self._made(path)
        node.children, node.born = node.children or {}, True

    def made_symlink(self, path: bytes) -> None:
        """Add a symbolic link that was made."""
        self._made(path).symlink = True

    def _made(self, path: bytes) -> Node:
        if (old := self.find(path)) is not None:
            if old.origin is not None and old.seen_ns > self.since_ns:
                old.origin = None  # the walk saw it after it was made
                return old
            self.remove(old)
        return self._new(path)

    def _new(self, path: bytes) -> Node:
        above, _, name = path.rpartition(b"/")
        parent = self._directories.get(above) or self.node(above)
        node = Node(name, parent)
        if parent.children is None:
            parent.children = {}
        parent.children[name] = node
        return node

    def link(self, key: Key | None, path: bytes) -> None:
        """Add a name to an object."""
        node = self._made(path)
        if key is not None:
            self._linked.add(key)
            self.bind(node, key)

    def remove(self, node: Node) -> None:
        """Remove a name; its node stays valid for descriptors that hold it."""
        self._take_away(node)
        self._unbind(node)

    def _take_away(self, node: Node) -> None:
        parent = node.parent
        if parent is not None and parent.children and parent.children.get(node.name) is node:
            del parent.children[node.name]
            if node.children is not None:
                self._directories.clear()
            if self._tracking:
                parent.gone = parent.gone or {}
                parent.gone[node.name] = node

    def removed(self, path: bytes, *, directory: bool = False) -> None:
        """Remove a path that was unlinked; hence it existed."""
        node = self.node(path) if self._started else self.find(path)
        if node is not None:
            if directory and node.children is None:
                node.children = {}
            self.remove(node)

    def lose(self, path: bytes) -> None:
        """Remove a name that was renamed to an unknown place."""
        if (node := self.find(path)) is not None:
            self.remove(node)
            node.lost = True
            self.era += 1

    def rename(self, old: bytes, new: bytes) -> None:
        """Move a name with all below it; it replaces an existing name."""
        if new == old or new.startswith(old + b"/"):
            return
        source, target = self.find(old), self.find(new)
        if target is not None and target.origin is not None and target.seen_ns > self.since_ns:
            source = self._moved_before(source, target, old)
            target = self.find(new)
        if source is None:
            source = self.node(old)
            target = self.find(new)
        if target is not None:
            if source.key is not None and source.key == target.key and source.key in self._linked:
                return  # rename(2): two names of one file both stay
            self.remove(target)
        self._move(source, new)

    def _moved_before(self, source: Node | None, target: Node, old: bytes) -> Node | None:
        """Move what the walk saw at the new name of a rename under way back to the old name."""
        if source is not None and source.key not in (None, target.key):
            return source  # the walk saw the file that the rename then replaced
        was = source or self.node(old)
        key, was.row, was.symlink = target.key, target.row, target.symlink
        if target.children is not None and was.children is None:
            was.children = {}
        for name, child in (target.children or {}).items():
            if was.children is not None and name not in was.children:
                child.parent, child.origin = was, child.origin and (was, name)
                was.children[name] = child
        target.origin = None
        self.remove(target)
        target.same, target.number = was, -1
        if key is not None:
            self.bind(was, key)
        return was

    def exchange(self, one: bytes, other: bytes) -> None:
        """Exchange two names (RENAME_EXCHANGE)."""
        first, second = self.node(one), self.node(other)
        if first is not second:
            self._move(first, other)
            self._move(second, one)

    def _move(self, node: Node, path: bytes) -> None:
        above, _, name = path.rpartition(b"/")
        self._take_away(node)
        parent = self._directories.get(above) or self.node(above)
        if parent.children is None:
            parent.children = {}
        node.name, node.parent, node.text, node.number = name, parent, None, -1
        if node.children is not None or name in parent.children:
            self._directories.clear()
        parent.children[name] = node
        if node.children is not None:
            self.era += 1
