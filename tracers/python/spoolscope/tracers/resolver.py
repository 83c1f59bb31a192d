"""Names and objects of single calls, by the descriptors and directories of their processes.

If an inode that the kernel recorded contradicts the known state, the inode counts: the name is then
found by inode or not at all, never guessed.
"""

import errno
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from spoolscope.tracers import given
from spoolscope.tracers.aliases import Aliases
from spoolscope.tracers.effects import Done, Row, Shape, signed
from spoolscope.tracers.mounting import Mounting
from spoolscope.tracers.named import BASE_CWD, BASE_FD, BASE_ROOT, NOTHING, Named, Names
from spoolscope.tracers.namespace import Namespace
from spoolscope.tracers.nodes import Key, Node
from spoolscope.tracers.processes import OpenFile, Process, Processes
from spoolscope.tracers.resolved import Resolved
from spoolscope.tracers.start import Start
from spoolscope.traces.abi import AT_FDCWD, S_IFDIR, S_IFMT
from spoolscope.traces.capture import Capture, Records
from spoolscope.traces.constants import CALL_OTHER_VIEW
from spoolscope.traces.filesystems import SUBVOLUMES

CHUNK = 8192
Int = npt.NDArray[np.int64]


# As Row._make, which takes three times as long.
_row = cast("Callable[[tuple[Any, ...]], Row]", partial(tuple.__new__, Row))


class Resolver:
    """Walks calls and task events in time order."""

    def __init__(self, capture: Capture) -> None:
        self.capture = capture
        aliases = Aliases(capture.meta)
        spools = capture.meta.get("spools", [])
        repeating = frozenset(int(s["dev"]) for s in spools if s.get("fstype") in SUBVOLUMES)
        self.space = Namespace(repeating)
        self.tops = tuple(spool["mount"].encode().rstrip(b"/") + b"/" for spool in spools)
        # Aliases below a spool may be unmounted: `below` has them.
        kept = aliases.outside(self.tops) if "mounted_below" in capture.meta else aliases
        self.names = Names(kept, self.tops)
        # If there is one spool, inodes without a device are on it.
        self.only_dev = int(spools[0]["dev"]) if len(spools) == 1 else 0
        self.processes = Processes(capture, self.space, aliases)
        self.comms: dict[bytes, int] = {}
        self.unresolved = 0
        self.mounting = Mounting(capture, self)
        self.n_prelude = len(capture.records["prelude"])

    def begin(self, start: Start, out: Resolved, before: Int) -> None:
        """Go back to the start; calls before it keep the names that they have now."""
        paths = list(self.names.paths)
        self.names.clear()
        self.processes, self.unresolved = start.processes, 0
        calls = self.capture.records["syscall"]
        for column in (out.path, out.path2, out.given, out.given2):
            for at in before[column[before] >= 0].tolist():
                column[at] = self.names.id(paths[column[at]])
        for at in before[(out.path[before] < 0) & (calls["ino"][before] > 0)].tolist():
            key = (int(calls["dev"][at]), int(calls["ino"][at]))
            out.path[at] = self.id_of(self.space.lookup(key))

    def comm(self, tid: int) -> int:
        """Return the number of a thread's present name."""
        return self.comms.setdefault(self.processes.comms.get(tid, b""), len(self.comms))

    def id_of(self, node: Node | None) -> int:
        """Return the path id of a node, -1 if its path is unknown."""
        if node is None:
            return -1
        if node.number >= 0 and node.era == self.space.era:
            return node.number
        path = self.space.path(node)
        if path is None:
            return -1
        number = self.names.id(path)
        if node.same is None:
            node.number = number
        return number

    def named(self, process: Process, dirfd: int | None, raw: bytes, flags: int) -> Named:
        """Return the name that a path leads to."""
        node: Node | None
        way: bytes | None = None
        root = process.cwd.root
        if raw.startswith(b"/"):
            if root is None or flags & CALL_OTHER_VIEW:
                found = self._joined(root, b"", raw, BASE_ROOT)
                return self._shown(process, found) if self.processes.below.any else found
            node, kind = root, BASE_ROOT
        elif dirfd is None or dirfd == AT_FDCWD:
            node, way, kind = process.cwd.node, process.cwd.way, BASE_CWD
        else:
            file = process.fds.get(dirfd)
            node, kind = (file.node if file else None), BASE_FD
            way = node.way if node is not None else None
        if way is not None:  # a replay mounts nothing there: the name begins at the top
            found = self._joined(root, way, raw, BASE_ROOT)._replace(given=-1)
        elif node is None or (base := self.space.path(node)) is None:
            return Named(-1, kind)
        else:
            found = self._joined(root, base, raw, kind)
        return self._shown(process, found) if self.processes.below.any else found

    def _joined(self, root: Node | None, base: bytes, raw: bytes, kind: int) -> Named:
        """Return the path of a name relative to a directory; ``..`` does not leave the root."""
        if root is None or b".." not in raw or (top := self.space.path(root)) in (None, b"/"):
            return self.names.named(base, raw, kind)
        return self.names.named(b"", given.within(top, base + b"/" + raw), kind)

    def _shown(self, process: Process, found: Named) -> Named:
        """Return the name that a known path leads to through the mounts that a process sees."""
        way = self.names.paths[found.path]
        path = self.processes.below.where(process.mount_ns, way)
        if path == way:
            return found
        return Named(-1 if path is None else self.names.id(path), found.base, way=way)

    def looked_at(
        self, process: Process, dirfd: int | None, key: Key, path: int, flags: int, mode: int
    ) -> tuple[Named, Node | None]:
        """Return the name that a path of the capture leads to, and its object if only that told it.

        A path that is not on a spool by its text has a symbolic link into the spool, as
        ``~/Maildir`` may be. An unknown path is resolved by inode only for a directory, which has
        one name; a file may have several.
        """
        named = self.named(process, dirfd, self.capture.strings[path], flags)
        (dev, ino), number = key, named[0]
        if not ino or (self.names.here[number] if number >= 0 else named.way is not None):
            return named, None
        if number < 0 and mode & S_IFMT != S_IFDIR:
            return named, None
        node = self.space.lookup((dev or self.only_dev, ino))
        return (named if node is None else Named(self.id_of(node), BASE_ROOT)), node

    def is_here(self, path: int) -> bool:
        """Return whether a path id is that of a name on a spool."""
        return path >= 0 and self.names.here[path]

    def behind(self, process: Process, shape: Shape, row: Row) -> Node | None:
        """Return the object of a descriptor, or of an address in a mapping."""
        key = (row.dev, row.ino)
        at = shape.fd if shape.fd >= 0 else shape.dirfd
        if at < 0:
            return (process.maps.get(key) or self.space.mapped(key)) if row.ino else None
        return self.of_descriptor(process, signed(row.args[at]), key)

    def of_descriptor(self, process: Process, fd: int, key: Key) -> Node | None:
        """Return the object of a descriptor, given the inode that the kernel recorded.

        If a descriptor has another inode than at its open, it was replaced in a way that is not
        recorded (passed over a socket): its old name is dropped.
        """
        file, ino = process.fds.get(fd), key[1]
        if file is not None and (not ino or file.key is None or file.key[1] == ino):
            return file.node
        found = self.space.lookup(key) if ino else None
        if file is not None and found is None:
            del process.fds[fd]
        elif file is not None and found is not None:
            process.fds[fd] = OpenFile(found, key, file.cloexec)
        return found

    def done(self, process: Process, shape: Shape, row: Row) -> Done:
        """Return a call with the names or object that it used, as far as they are known."""
        strings, args = self.capture.strings, row.args
        first = second = NOTHING
        node: Node | None = None
        if shape.path >= 0 and row.path:
            dirfd = signed(args[shape.dirfd]) if shape.dirfd >= 0 else None
            key = (row.dev, row.ino)
            first, node = self.looked_at(process, dirfd, key, row.path, row.flags, row.obj_mode)
        else:
            node = self.behind(process, shape, row)
            first = Named(self.id_of(node), way=node.way if node is not None else None)
            # The call has no path, or one that is not recorded; an empty path names nothing.
            if shape.path >= 0 and first.path >= 0 and row.ret != -errno.ENOENT:
                by_fd = shape.dirfd >= 0 and signed(args[shape.dirfd]) >= 0
                first = first._replace(base=BASE_FD if by_fd else BASE_ROOT)
        if shape.path2 >= 0 and row.path2:
            dirfd = signed(args[shape.dirfd2]) if shape.dirfd2 >= 0 else None
            second = self.named(process, dirfd, strings[row.path2], row.flags)
        elif shape.has_text and row.path2:
            second = Named(self.text(strings[row.path2]))
        path = self.names.paths[first.path] if first.path >= 0 else None
        path2 = self.names.paths[second.path] if second.path >= 0 else None
        return Done(self.space, process, shape, row, first, second, path, path2, node)

    def text(self, raw: bytes) -> int:
        """Intern a name that is not resolved (symlink target, xattr name)."""
        return self.names.id(b"\0" + raw)


def rows_of(calls: Records, order: Int) -> Iterator[Row]:
    """Yield calls in an order; chunk by chunk, as Python values take much memory."""
    for begin in range(0, len(order), CHUNK):
        places = order[begin : begin + CHUNK]
        yield from rows_at(calls[places], places)


def rows_at(calls: Records, places: Int) -> Iterator[Row]:
    """Yield calls that are at these places of the capture."""
    columns = [calls[member].tolist() for member in Row._fields[1:]]
    return map(_row, zip(places.tolist(), *columns, strict=True))
