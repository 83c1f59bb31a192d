"""Finds calls below the root and their objects, by following descriptors and names.

The recorder gets both from the kernel. Here the code that names the recorder's calls processes all
calls of strace, on the spool or not, and trusts the paths that strace printed with descriptors.
"""

import errno
import os
from bisect import bisect_left
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from spoolscope.tracers.effects import SHAPES, Row, Shape, apply, signed
from spoolscope.tracers.nodes import Node
from spoolscope.tracers.processes import OpenFile, Process
from spoolscope.tracers.resolver import Resolver, rows_of
from spoolscope.tracers.strace.measuring import OPENS, STATS, Measuring, flags_of_open
from spoolscope.tracers.strace.objects import DEVICE, Object, Quantity
from spoolscope.tracers.strace.records import ELSEWHERE, WORDS, Strings
from spoolscope.tracers.strace.words import DELETED
from spoolscope.tracers.timeline import Timeline
from spoolscope.traces.abi import AT_FDCWD, O_CREAT, O_EXCL, O_TMPFILE, S_IFDIR, S_IFLNK, S_IFMT
from spoolscope.traces.calls import ALWAYS, CALLS, of_effect, of_kind
from spoolscope.traces.capture import Capture, Records

DIRECTORY_CALLS = (*of_kind("fchdir"), *of_effect("lists"))
LINKS = of_effect("links")
_MODE_AT = {name: CALLS[name].args.index("mode") for name in of_kind("chmod")}
BY_NAME = (*of_kind("truncate"), *_MODE_AT)
OF_ADDRESSES = of_kind("unmap", "msync")
LAST_STANDARD = 2  # terminals and logs
Bool = npt.NDArray[np.bool_]
Parents = dict[int, list[tuple[int, int]]]
Life = tuple[int, int]
"""A process and the time of its fork, 0 if older than the start; pids are reused."""


class AtStart(NamedTuple):
    """A descriptor that must have been open when strace began."""

    pid: int
    fd: int
    path: bytes
    node: Node
    ino: int
    position: Quantity


class Following:
    """Processes all calls in the order in which they returned.

    Args:
        capture: All calls, and the lives of threads.
        beside: Paths that strace printed with descriptors, call by call (records.BESIDE).
        strings: Those of the capture.
        root: Directory that counts as the spool.
        began: Processes that existed at the start, with whether strace began them.
        parents: Time of the fork of each process, and its parent, in order of time.
        cwds: Working directories of processes at the start, as far as they are known.
        absolute: Names that begin at a directory are made absolute.

    Attributes:
        strayed: A working directory that strace printed differs from what the calls come to.
        kept: For each call, whether it is below the root or changes processes.
        below: Number of calls below the root.
        unplaced: Number of calls of which it is unknown whether they are below the root.
        cwds: Working directories at the start, by process.
        files: Descriptors open at the start.
    """

    def __init__(
        self,
        capture: Capture,
        beside: Records,
        strings: Strings,
        root: bytes,
        began: dict[int, bool],
        parents: Parents,
        cwds: Mapping[int, bytes] = MappingProxyType({}),
        *,
        absolute: bool = False,
    ) -> None:
        self._capture, self._strings = capture, strings
        self._root, self._began, self._parents = root, began, parents
        self._resolver = Resolver(capture)
        self._space = self._resolver.space
        self._measuring = Measuring(capture.records["syscall"])
        self._objects = self._measuring.objects
        self._absolute, self.strayed = absolute, False
        self._moved: set[Life] = set()
        self._used: set[tuple[Life, int]] = set()
        self._born: set[int] = set()
        self._deleted: dict[tuple[int, bytes], Node] = {}
        self._maps: dict[Life, list[tuple[int, int, int]]] = {}
        n = len(capture.records["syscall"])
        self._beside = [beside[word].tolist() for word in WORDS]
        self._words = WORDS
        self._with_paths = bool(n) and any(map(any, self._beside))
        seen = capture.records["syscall"]["call"]
        self._with_renames, self._with_closes = (
            bool(np.isin(seen, [CALLS[name].id for name in of_effect(effect)]).any())
            for effect in ("renames", "closes")
        )
        self.kept: Bool = np.zeros(n, np.bool_)
        self.below = self.unplaced = 0
        self.cwds = dict(cwds)
        for pid, cwd in cwds.items():
            self._resolver.processes.of(pid).cwd.node = self._space.node(cwd)
        self.files: list[AtStart] = []

    def go(self) -> None:
        """Follow all calls, then fill in the measured values."""
        calls = self._capture.records["syscall"]
        timeline = Timeline(self._capture, self._resolver.processes)
        for row in rows_of(calls, np.argsort(calls["end_ns"], kind="stable")):
            timeline.until(row.end_ns)
            process = self._resolver.processes.of(row.pid)
            self._call(process, SHAPES[row.call], row)
        self._measuring.fill()

    def position(self, file: AtStart) -> int:
        """Return where a file was when it began, 0 if nothing shows it."""
        return max(self._objects.unknowns.value(file.position), 0)

    def _call(self, process: Process, shape: Shape, row: Row) -> None:
        if self._with_paths:
            self._learn(process, shape, row)
            if self._absolute:
                row = self._completed(process, shape, row)
        done = self._resolver.done(process, shape, row)
        found = self._target(process, shape, row, done.path, done.node)
        if found is not None:
            row = row._replace(dev=DEVICE, ino=found.ino)
        below = found is not None or self._leads_below(process, shape, row, done.path, done.path2)
        kept = below or shape.name in ALWAYS
        self.kept[row.position] = kept
        self.below += below
        if not kept and done.path is None and self._may_be_below(shape, row):
            self.unplaced += 1
        if shape.moves and row.ret >= 0:
            self._moved.add(self._life(row))
        apply(done._replace(row=row))
        if row.ret >= 0:
            self._succeeded(process, shape, row)
        if found is not None:
            self._measuring.call(process, shape, row, found)
        elif shape.name in BY_NAME and row.ret >= 0:
            self._changed(shape, done.path, row)

    def _changed(self, shape: Shape, path: bytes | None, row: Row) -> None:
        """Note a change of an object by its name, which the recorder has no inode of."""
        if path is None or not self._is_below(path):
            return
        found = self._object(self._space.node(path))
        if found is not None and shape.name == "truncate":
            self._measuring.truncated(found, row)
        elif found is not None:
            self._objects.chmod(found, row.args[_MODE_AT[shape.name]])

    # -- paths that strace printed with descriptors --------------------------------

    def _learn(self, process: Process, shape: Shape, row: Row) -> None:
        for word, column in zip(self._words, self._beside, strict=True):
            text = column[row.position]
            if text in (0, ELSEWHERE):
                continue
            path = self._capture.strings[text]
            if word == "ret":
                self._opened_in(process, shape, row, path)
                continue
            fd = signed(row.args[getattr(shape, word)])
            if fd == AT_FDCWD:
                self._is_in(process, row, path)
            elif fd not in process.fds or self._is_another(process.fds[fd], path):
                self._was_open(process, row, fd, path, directory=_shows_directory(shape, row, word))

    def _completed(self, process: Process, shape: Shape, row: Row) -> Row:
        """Put the directory before each name that begins at one, here and in the records."""
        for member, word in (("path", "dirfd"), ("path2", "dirfd2")):
            name = self._capture.strings[getattr(row, member)]
            if getattr(shape, member) < 0 or not name or name.startswith(b"/"):
                continue
            above = self._directory(process, row, getattr(shape, word))
            if above is not None and process.cwd.root is None:
                row = self._name(row, member, self._strings.id(above + b"/" + name))
        return row

    def _directory(self, process: Process, row: Row, at: int) -> bytes | None:
        """Return the directory that a name begins at, without a slash at its end; None if unknown.

        Args:
            process: That of the call.
            row: The call.
            at: Position of the descriptor of the directory, negative if there is none.
        """
        fd = signed(row.args[at]) if at >= 0 else AT_FDCWD
        known = process.cwd if fd == AT_FDCWD else process.fds.get(fd)
        path = self._space.path(known.node) if known and known.node else None
        return None if path is None else path.rstrip(b"/")

    def _name(self, row: Row, member: str, text: int) -> Row:
        """Give a call another name, here and in the records."""
        self._capture.records["syscall"][member][row.position] = text
        return row._replace(path=text) if member == "path" else row._replace(path2=text)

    def _is_in(self, process: Process, row: Row, path: bytes) -> None:
        """Believe a printed working directory: a filter, or a link, may hide how it came to be."""
        if path.endswith(DELETED):
            return
        if process.cwd.node is None:
            self._was_in(row, path)
        elif self._space.path(process.cwd.node) == path:
            return
        else:
            self.strayed = True
        process.cwd.node = self._space.node(path)

    def _is_another(self, file: OpenFile, path: bytes) -> bool:
        """Return whether a printed path shows another file than the one that calls opened.

        If strace was to leave out renames, and not the closing of files, it is the same file.
        """
        known = self._space.path(file.node)
        differs = known is not None and known != path and not path.endswith(DELETED)
        return differs and (self._with_renames or not self._with_closes)

    def _opened_in(self, process: Process, shape: Shape, row: Row, path: bytes) -> None:
        """Find the working directory from a name relative to it and the path that it opened."""
        name = self._capture.strings[row.path]
        relative = name and not name.startswith(b"/")
        by_cwd = shape.dirfd < 0 or signed(row.args[shape.dirfd]) == AT_FDCWD
        if process.cwd.node is not None or not relative or not by_cwd or b".." in name.split(b"/"):
            return
        end = os.path.normpath(name)
        above = path if end == b"." else path.removesuffix(b"/" + end)
        if end == b"." or above != path:  # else it led through a symbolic link
            process.cwd.node = self._space.node(above or b"/")
            self._was_in(row, above or b"/")

    def _was_in(self, row: Row, path: bytes) -> None:
        first = self._first(row)
        if not self._moved & {self._life(row), (first, 0)}:
            self.cwds.setdefault(first, path)

    def _was_open(
        self, process: Process, row: Row, fd: int, path: bytes, *, directory: bool
    ) -> None:
        """Add a descriptor that no call opened: it is older, or was passed over a socket."""
        node, key, life = self._held(fd, path), None, self._life(row)
        own = -(1 << 40) - len(self._used)  # a new number of a description, unlike those of opens
        if self._is_below(path) and (found := self._object(node)) is not None:
            key = (DEVICE, found.ino)
            first = self._first(row)
            is_new = found.ino in self._born
            if not is_new and not self._used & {(life, fd), ((first, 0), fd)}:
                position = self._measuring.found_open(own)
                self.files.append(AtStart(first, fd, path, node, found.ino, position))
        if directory and node.children is None:
            node.children = {}
        process.fds[fd] = OpenFile(node, key, cloexec=False, description=own)
        self._used.add((life, fd))

    def _held(self, fd: int, path: bytes) -> Node:
        """Return the node of a descriptor.

        Several deleted files may have had one name, as versions of an index; an inherited
        descriptor leads to the same file, and has the same number.
        """
        if not path.endswith(DELETED):
            return self._space.node(path)
        node = self._deleted.get((fd, path))
        if node is None:
            key = (DEVICE, self._objects.new(empty=False).ino)
            node = self._space.nameless(path.removesuffix(DELETED), key)
            self._deleted[fd, path] = node
        return node

    def _first(self, row: Row) -> int:
        """Return the process at the start that a call's process descends from."""
        return list(self._lineage(row))[-1][0]

    def _lineage(self, row: Row) -> Iterator[Life]:
        """Yield a call's process and its ancestors up to the one that existed at the start."""
        pid, ts_ns = row.pid, row.end_ns
        while at := bisect_left(self._parents.get(pid, ()), (ts_ns,)):
            made_ns, parent = self._parents[pid][at - 1]
            yield pid, made_ns
            ts_ns, pid = made_ns, parent
        yield pid, 0

    def _life(self, row: Row) -> Life:
        return next(self._lineage(row))

    # -- which object ---------------------------------------------------------------

    def _is_below(self, path: bytes | None) -> bool:
        root = self._root
        return path is not None and (path.startswith(root + b"/") or path == (root or b"/"))

    def _object(self, node: Node) -> Object | None:
        """Return the object at a name; None for a symbolic link, whose target is unknown."""
        while node.same is not None:
            node = node.same
        if node.key is None:
            if node.symlink:
                return None
            self._space.bind(node, (DEVICE, self._objects.new(empty=False).ino))
        return self._objects.of(node.key[1]) if node.key else None

    def _target(
        self, process: Process, shape: Shape, row: Row, path: bytes | None, node: Node | None
    ) -> Object | None:
        """Return the object of a call if the recorder would record its inode."""
        if shape.name in OPENS:
            return self._opened(process, shape, row, path) if row.ret >= 0 else None
        if shape.fd >= 0:
            return self._behind(process, row.args[shape.fd])
        if shape.name in OF_ADDRESSES:
            return self._mapped_at(row)
        if row.ret < 0:
            return None
        if shape.name in STATS and not row.path and shape.dirfd >= 0:  # AT_EMPTY_PATH
            found = self._behind(process, row.args[shape.dirfd])
            if found is not None:  # not by name: an O_TMPFILE file has its directory's name here
                return found
        if not self._is_below(path) or path is None:
            return None
        if shape.name in STATS:
            at = node or self._space.node(path)
            if row.obj_mode & S_IFMT == S_IFLNK:  # another object than calls meet by this name
                at.symlink = True
                return None
            return self._object(at)
        if shape.name in LINKS:
            self._object(node or self._space.node(path))
        return None

    def _behind(self, process: Process, number: int) -> Object | None:
        """Return the object that a descriptor leads to."""
        file = process.fds.get(signed(number))
        return self._objects.of(file.key[1]) if file is not None and file.key else None

    def _opened(
        self, process: Process, shape: Shape, row: Row, path: bytes | None
    ) -> Object | None:
        flags = flags_of_open(shape, row)
        said = self._said("ret", row)
        nameless = flags & O_TMPFILE == O_TMPFILE
        if not self._is_below(path if said is None else said):
            return None
        if said is not None and said != path and not nameless:
            if path is not None:
                self._space.node(path).symlink = True
            found = self._object(self._space.node(said))
            # By this name without a link: two names of one object would be hard links.
            above = self._directory(process, row, shape.dirfd)
            relative = not self._capture.strings[row.path].startswith(b"/")
            if relative and above is not None and said.startswith(above + b"/"):
                said = said[len(above) + 1 :]
            self._name(row, "path", self._strings.id(said))
        elif path is None:
            return None
        elif nameless or (flags & O_CREAT and (flags & O_EXCL or self._is_absent(path))):
            found = self._objects.new(empty=True)
            self._born.add(found.ino)
        else:
            found = self._object(self._space.node(path))
        return found

    def _is_absent(self, path: bytes) -> bool:
        """Return whether a name is known, from calls, not to exist."""
        above, _, name = path.rpartition(b"/")
        parent = self._space.find(above)
        if parent is None or (parent.children and name in parent.children):
            return False
        return parent.born or bool(parent.gone and name in parent.gone)

    def _said(self, word: str, row: Row) -> bytes | None:
        text = self._beside[self._words.index(word)][row.position]
        return self._capture.strings[text] if text else None

    def _mapped_at(self, row: Row) -> Object | None:
        life = next((life for life in self._lineage(row) if life in self._maps), (0, 0))
        for begin, end, ino in self._maps.get(life, ()):
            if begin <= row.args[0] < end:
                return self._objects.of(ino)
        return None

    # -- which calls ----------------------------------------------------------------

    def _leads_below(
        self, process: Process, shape: Shape, row: Row, path: bytes | None, path2: bytes | None
    ) -> bool:
        if self._is_below(path) or (shape.path2 >= 0 and self._is_below(path2)):
            return True
        if shape.path >= 0 and not row.path and shape.dirfd < 0:  # open("")
            cwd = process.cwd.node
            return cwd is not None and self._is_below(self._space.path(cwd))
        if shape.fd2 < 0:
            return False
        file = process.fds.get(signed(row.args[shape.fd2]))
        return file is not None and self._is_below(self._space.path(file.node))

    def _may_be_below(self, shape: Shape, row: Row) -> bool:
        if shape.path >= 0 and row.path:
            return True
        word = "fd" if shape.fd >= 0 else "dirfd"
        at = getattr(shape, word)
        if at < 0 or signed(row.args[at]) <= LAST_STANDARD:
            return False
        if row.ret == -errno.EBADF:
            return False
        if self._with_paths:  # strace prints the path of every valid descriptor
            ranges = shape.name == "close_range"
            return not ranges and not self._beside[self._words.index(word)][row.position]
        return not self._began.get(self._first(row), False)

    # -- what it did ----------------------------------------------------------------

    def _succeeded(self, process: Process, shape: Shape, row: Row) -> None:
        """Note new descriptors and mappings, and links that opens followed."""
        if shape.returns_fd or shape.name == "fcntl":
            self._used.add((self._life(row), row.ret))
        file = process.fds.get(row.ret) if shape.name in OPENS else None
        if file is not None and row.ino:
            said = self._said("ret", row)
            if said is not None and file.node.symlink:
                process.fds[row.ret] = file._replace(node=self._space.node(said))
            self._measuring.opened(file.description, flags_of_open(shape, row))
        elif shape.name == "mmap":
            maps = self._maps.setdefault(self._life(row), [])
            begin, end = row.ret, row.ret + row.args[1]
            maps[:] = [m for m in maps if m[1] <= begin or m[0] >= end]
            if row.ino:
                maps.append((begin, end, row.ino))


def _shows_directory(shape: Shape, row: Row, word: str) -> bool:
    """Return whether a call shows that a descriptor is of a directory.

    A call without a path (AT_EMPTY_PATH, futimens) is on the descriptor itself: any file.
    """
    named = {"dirfd": row.path, "dirfd2": row.path2}.get(word, 0) > 0
    return named or shape.name in DIRECTORY_CALLS or row.obj_mode & S_IFMT == S_IFDIR
