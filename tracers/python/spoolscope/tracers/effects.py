"""Effects of calls on names, descriptors and working directories."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from spoolscope.tracers.named import Named
from spoolscope.tracers.namespace import Namespace
from spoolscope.tracers.nodes import Key, Node, beyond
from spoolscope.tracers.processes import OpenFile, Process, as_open_file
from spoolscope.traces.abi import (
    AT_REMOVEDIR,
    CLOSE_RANGE_CLOEXEC,
    DUPLICATES,
    F_DUPFD_CLOEXEC,
    F_SETFD,
    O_CLOEXEC,
    O_CREAT,
    O_EXCL,
    O_TMPFILE,
    RENAME_EXCHANGE,
    S_IFDIR,
    S_IFMT,
)
from spoolscope.traces.calls import BY_ID, CALLS, MARKS


@dataclass(frozen=True)
class Shape:
    """Argument positions of a call, -1 if it has none."""

    name: str
    fd: int
    fd2: int
    dirfd: int
    dirfd2: int
    path: int
    path2: int
    has_text: bool
    flags: int
    returns_fd: bool
    is_exec: bool
    moves: bool
    mounts: bool
    renames: bool


def _shape(number: int) -> Shape:
    call = BY_ID[number]

    def at(word: str) -> int:
        position = call.position(word)
        return -1 if position is None else position

    return Shape(
        name=call.name,
        fd=at("fd"),
        fd2=at("fd2"),
        dirfd=at("dirfd"),
        dirfd2=at("dirfd2"),
        path=at("path"),
        path2=at("path2"),
        # strace prints what readlink found; the recorder has that from its snapshot.
        has_text=at("target") >= 0 or at("name") >= 0 or call.kind == "readlink",
        flags=at("flags"),
        returns_fd=call.returns_fd,
        is_exec=call.effect == "execs",
        moves=call.effect == "enters",
        mounts=at("ns") >= 0,
        renames=call.effect == "renames",
    )


SHAPES = [_shape(i) for i in range(len(CALLS))]


def signed(value: int) -> int:
    """Return a 64-bit register as the C int it carries."""
    value &= 0xFFFF_FFFF
    return value - (1 << 32) if value & 0x8000_0000 else value


class Row(NamedTuple):
    """The members of a call used here, as Python values: much faster than record access."""

    position: int
    start_ns: int
    end_ns: int
    call: int
    pid: int
    tid: int
    ret: int
    args: list[int]
    path: int
    path2: int
    dev: int
    ino: int
    obj_mode: int
    flags: int


class Done(NamedTuple):
    """A call that returned, with the names that it used.

    Attributes:
        first, second: Its paths, or the first one is that of its descriptor.
        path, path2: The same as texts, None if unknown.
        node: The object of its descriptor or address, if there is no path.
    """

    space: Namespace
    process: Process
    shape: Shape
    row: Row
    first: Named
    second: Named
    path: bytes | None
    path2: bytes | None
    node: Node | None


def changes(shape: Shape) -> bool:
    """Return whether calls of this shape may have an effect."""
    return _EFFECTS[CALLS[shape.name].id] is not None or shape.mounts


def apply(done: Done) -> None:
    """Apply the effects of a call; a failed call has none, except that close() always closes."""
    row = done.row
    effect = _EFFECTS[row.call]
    if effect is not None and (row.ret >= 0 or row.call == _CLOSE):
        done.space.since_ns = row.start_ns
        effect(done)


def flags_at(shape: Shape) -> int:
    """Return the position of the flags of a call, -1 if it has none."""
    return 2 if shape.name == "openat2" else shape.flags


def implied_flags(shape: Shape) -> int:
    """Return the flags that a call without flags acts as if it had."""
    kind, effect = CALLS[shape.name].kind, CALLS[shape.name].effect
    if kind == "rmdir":
        return AT_REMOVEDIR
    return O_CREAT if effect == "opens" else 0


def _flags(done: Done) -> int:
    at = flags_at(done.shape)
    return done.row.args[at] if at >= 0 else implied_flags(done.shape)


def _opened(done: Done) -> None:
    row, flags = done.row, _flags(done)
    key, number = (row.dev, row.ino), row.position
    opened(
        done.space,
        done.process,
        done.path,
        done.first.way,
        row.ret,
        flags,
        key,
        row.obj_mode,
        number,
    )


def opened(
    space: Namespace,
    process: Process,
    path: bytes | None,
    way: bytes | None,
    fd: int,
    flags: int,
    known: Key,
    mode: int,
    number: int,
) -> None:
    """Apply an open.

    Args:
        space: All names.
        process: Gets the descriptor.
        path: The name that was opened, None if unknown.
        way: The name that led to another filesystem, mounted below a spool.
        fd: The new descriptor.
        flags: Flags of the call.
        known: Device and inode number; 0 if unknown.
        mode: st_mode, 0 if unknown.
        number: The call's place in the capture.
    """
    key = known if known[1] else None
    if path is None:
        process.fds.pop(fd, None)
        if way is not None:
            process.fds[fd] = OpenFile(beyond(way), key, bool(flags & O_CLOEXEC), flags)
        return
    if key is None or flags & O_TMPFILE == O_TMPFILE:
        node = space.node(path)
    else:
        creates = flags & O_CREAT > 0
        node = space.opened(path, key, creates=creates, exclusive=creates and flags & O_EXCL > 0)
    if mode & S_IFMT == S_IFDIR and node.children is None:
        node.children = {}
    # Number of the open file description; the recorder's own numbers (32 bits) are not negative.
    own = -1 - number
    process.fds[fd] = as_open_file((node, key, flags & O_CLOEXEC > 0, flags, mode, own, 0, -1))


def _closed(done: Done) -> None:
    done.process.fds.pop(signed(done.row.args[0]), None)


def _closed_range(done: Done) -> None:
    first, last, flags = done.row.args[:3]
    fds = done.process.fds
    for fd in [fd for fd in fds if first & 0xFFFF_FFFF <= fd <= last & 0xFFFF_FFFF]:
        if flags & CLOSE_RANGE_CLOEXEC:
            fds[fd] = fds[fd]._replace(cloexec=True)
        else:
            del fds[fd]


def _duplicated(done: Done) -> None:
    row, fds = done.row, done.process.fds
    if done.shape.name == "fcntl" and row.args[1] not in DUPLICATES:
        fd = signed(row.args[0])
        if row.args[1] == F_SETFD and fd in fds:
            fds[fd] = fds[fd]._replace(cloexec=bool(row.args[2] & 1))
        return
    cloexec = (done.shape.name == "dup3" and bool(row.args[2] & O_CLOEXEC)) or (
        done.shape.name == "fcntl" and row.args[1] == F_DUPFD_CLOEXEC
    )
    old = signed(row.args[0])
    if old not in fds:
        fds.pop(row.ret, None)
    elif old != row.ret:
        fds[row.ret] = fds[old]._replace(cloexec=cloexec)


def _marked(done: Done) -> None:
    fd, command = map(signed, done.row.args[:2])
    fds = done.process.fds
    if command in MARKS and fd in fds:
        fds[fd] = fds[fd]._replace(cloexec=MARKS[command])


def _mapped(done: Done) -> None:
    if done.node is not None and done.row.ino:
        done.node.keep = True
        done.process.maps[done.row.dev, done.row.ino] = done.node


def _changed_directory(done: Done) -> None:
    node = done.node
    if node is None and done.path is not None:
        node = done.space.node(done.path)
    done.process.cwd.node = node


def _changed_root(done: Done) -> None:
    done.process.cwd.root = done.space.node(done.path) if done.path is not None else None


def _renamed(done: Done) -> None:
    renamed(done.space, done.path, done.path2, _flags(done))


def renamed(space: Namespace, old: bytes | None, new: bytes | None, flags: int) -> None:
    """Apply a rename of names, None if unknown, with the flags of the call."""
    exchange = flags & RENAME_EXCHANGE
    if old is not None and new is not None:
        space.exchange(old, new) if exchange else space.rename(old, new)
        return
    for path in (old, new):
        if path is not None and (exchange or path is old):
            space.lose(path)
        elif path is not None:
            space.removed(path)


def _linked(done: Done) -> None:
    if done.path2 is None:
        return
    key: Key | None = None
    if done.node is not None:  # AT_EMPTY_PATH: the file of the descriptor
        file = done.process.fds.get(signed(done.row.args[done.shape.dirfd]))
        key = file.key if file else None
    elif done.path is not None and (node := done.space.find(done.path)) is not None:
        key = node.key
    done.space.link(key, done.path2)


def _made_directory(done: Done) -> None:
    if done.path is not None:
        done.space.made_directory(done.path)


def _made_symlink(done: Done) -> None:
    if done.path is not None:
        done.space.made_symlink(done.path)


def _removed(done: Done) -> None:
    removed(done.space, done.path, _flags(done))


def removed(space: Namespace, path: bytes | None, flags: int) -> None:
    """Apply a removal of a name, None if unknown, with the flags of the call."""
    if path is not None:
        space.removed(path, directory=flags & AT_REMOVEDIR > 0)


_BY_EFFECT: dict[str, Callable[[Done], None]] = {
    "opens": _opened,
    "duplicates": _duplicated,
    "marks": _marked,
    "maps": _mapped,
    "enters": _changed_directory,
    "roots": _changed_root,
    "renames": _renamed,
    "links": _linked,
    "removes": _removed,
}
_BY_KIND: dict[str, Callable[[Done], None]] = {
    "close": _closed,
    "close_range": _closed_range,
    "mkdir": _made_directory,
    "symlink": _made_symlink,
}
_EFFECTS = [
    _BY_KIND.get(call.kind) or _BY_EFFECT.get(call.effect)
    for call in (BY_ID[number] for number in range(len(CALLS)))
]
_CHANGING = [changes(shape) for shape in SHAPES]
_CLOSE = CALLS["close"].id


def may_change(row: Row) -> bool:
    """Return whether a call may have had an effect; of the failed ones only close has."""
    return _CHANGING[row.call] and (row.ret >= 0 or row.call == _CLOSE)
