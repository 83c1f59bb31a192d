"""The members of a record for one call of strace, by the argument words of calls.txt."""

import errno
import struct
from collections.abc import Callable
from dataclasses import dataclass, field

from spoolscope.tracers.strace.lines import Called
from spoolscope.tracers.strace.words import (
    Behind,
    NotUnderstoodError,
    descriptor,
    member,
    number,
    signed,
    split,
    string,
)
from spoolscope.tracers.syscalls import ACL_MODE
from spoolscope.traces.abi import FCNTL_LOCKS
from spoolscope.traces.calls import CALLS, FICLONE, FICLONERANGE, Call

# Calls for which strace prints the offset as one argument; the kernel gets two halves.
_JOINED_OFFSET = ("preadv2", "pwritev2")
ACCESS_ACL = b"system.posix_acl_access"
_MASK = 0xFFFF_FFFF_FFFF_FFFF


@dataclass
class Members:
    """The members of a record of a call.

    Attributes:
        call: Id in calls.txt.
        args: Arguments by position.
        path, path2: Paths as given, None if there is none. The second of readlink is what the link
            holds.
        cut: strace cut the second text.
        count: Bytes asked for by an iovec.
        pos, size: Range of a lock.
        lock_type: Type and whence of a lock.
        obj_mode, obj_size: Values from stat; 0 and -1 if there are none.
        behind: Paths that strace printed with descriptors, by argument word; "ret": the result's.
    """

    call: int
    args: list[int] = field(default_factory=lambda: [0] * 6)
    path: bytes | None = None
    path2: bytes | None = None
    cut: bool = False
    count: int = 0
    pos: int = -1
    size: int = -1
    lock_type: int = 0
    obj_mode: int = 0
    obj_size: int = -1
    behind: dict[str, Behind] = field(default_factory=dict)


def members_of(line: Called) -> Members:
    """Return the members of a call that is in calls.txt.

    Raises:
        NotUnderstoodError: an argument has an unknown form.
    """
    call = CALLS[line.name]
    made = Members(call.id)
    if call.effect == "forks":
        made.args[0] = clone_flags(line.args) if call.name == "clone" else 0
        return made
    args = line.args
    if call.name in _JOINED_OFFSET and len(args) == 5:
        args = [*args[:4], "", args[4]]
    for at, (word, text) in enumerate(zip(call.args, args, strict=False)):
        if reader := _READERS.get(word):
            reader(made, call, line, at, text)
    if call.kind == "readlink":
        _body(made, line)
    if call.returns_fd and line.ret is not None and line.ret >= 0 and line.behind:
        made.behind["ret"] = descriptor(f"{line.ret}{line.behind}")
    return made


def clone_flags(args: list[str]) -> int:
    """Return the flags of clone or clone3."""
    text = next((member(arg, "flags") for arg in args if "flags=" in arg), None)
    if text is None:
        raise NotUnderstoodError
    return number(text)


def _descriptor(made: Members, _call: Call, _line: Called, at: int, text: str) -> None:
    found = descriptor(text)
    made.args[at] = found.fd & _MASK
    if found.path is not None:
        made.behind[_call.args[at]] = found


def _number(made: Members, _call: Call, _line: Called, at: int, text: str) -> None:
    # "BTRFS_IOC_CLONE or FICLONE": one number with two names.
    made.args[at] = number(text.rpartition(" or ")[2]) & _MASK


def _path(made: Members, _call: Call, line: Called, _at: int, text: str) -> None:
    if line.name == "bind":  # {sa_family=AF_UNIX, sun_path="a socket"}, or once AF_FILE, path=
        text = text.partition("path=")[2].removesuffix("}")
    made.path, cut = string(text)
    # strace prints an address if it cannot be read, and the call fails; with -e raw always.
    unread = text == "NULL" or (text.startswith("0x") and (line.ret is None or line.ret < 0))
    if cut or (made.path is None and not unread):
        raise NotUnderstoodError


def _path2(made: Members, _call: Call, _line: Called, _at: int, text: str) -> None:
    made.path2, cut = string(text)
    if cut or made.path2 is None:
        raise NotUnderstoodError


def _clone(made: Members, _call: Call, _line: Called, at: int, text: str) -> None:
    """Read a descriptor, or struct file_clone_range."""
    if made.args[1] == FICLONE:
        made.args[at] = descriptor(text).fd & _MASK
    elif made.args[1] == FICLONERANGE and text.startswith("{"):
        names = ("src_fd", "src_offset", "src_length", "dest_offset")
        for place, name in enumerate(names, at):
            text_of = (member(text, name) or "-1").partition("<")[0]
            made.args[place] = number(text_of) & _MASK


def _acl(made: Members, _call: Call, line: Called, at: int, text: str) -> None:
    """Set the mode of an access ACL as the recorder does, unless -s has cut the value."""
    value, cut = string(text)
    if string(line.args[1])[0] != ACCESS_ACL or cut or not value or len(value) % 8 != 4:
        return
    # The owner is first; last are group or mask, and others (linux/posix_acl_xattr.h).
    entries = list(struct.iter_unpack("<HHI", value[4:]))
    tags = [1, 4 if len(entries) == 3 else 16, 32]
    if len(entries) >= 3 and [entries[place][0] for place in (0, -2, -1)] == tags:
        owner, group, other = (entries[place][1] & 7 for place in (0, -2, -1))
        made.args[at] = ACL_MODE | owner << 6 | group << 3 | other


def _name(made: Members, _call: Call, _line: Called, _at: int, text: str) -> None:
    """Read a symlink's target, or the name of an extended attribute, which -s may cut."""
    made.path2, made.cut = string(text)


def _body(made: Members, line: Called) -> None:
    """Read what a symlink holds; unless -s has cut it, or the buffer was full and may have."""
    text, size = (*line.args[-2:], "0")[:2]
    body, cut = string(text)
    if body and not cut and line.ret == len(body) < number(size):
        made.path2 = body


def _stat(made: Members, _call: Call, line: Called, _at: int, text: str) -> None:
    if line.ret != 0 or not text.startswith("{"):
        return
    prefix = "stx" if line.name == "statx" else "st"
    mode, size = (member(text, f"{prefix}_{what}") for what in ("mode", "size"))
    made.obj_mode = number(mode) & 0xFFFF if mode is not None else 0
    made.obj_size = signed(number(size)) if size is not None else -1


def _lock(made: Members, _call: Call, line: Called, at: int, text: str) -> None:
    if number(line.args[1]) not in FCNTL_LOCKS:
        made.args[at] = 0 if text.startswith("{") else number(text) & _MASK
        return
    # F_GETLK: the request is before the arrow, if strace prints it.
    asked = text.split(" => ", 1)[0]
    kind, whence, start, length = (
        member(asked, f"l_{name}") or member(asked, name)  # strace before 4.9 has no l_
        for name in ("type", "whence", "start", "len")
    )
    if kind is None or whence is None:  # an address: unreadable, or strace was to print no structs
        if line.ret != -errno.EFAULT:
            raise NotUnderstoodError
        return
    made.lock_type = (number(kind) & 0xFF) | (number(whence) & 0xFF) << 8
    made.pos, made.size = (signed(number(text or "0")) for text in (start, length))


def _iov(made: Members, _call: Call, line: Called, _at: int, text: str) -> None:
    """Set the size of an iovec; -s 0 omits the vectors: then the result counts as the size."""
    vectors = split(text, 1)[0] if text.startswith("[") else ["..."]
    if any(not vector.startswith("{") for vector in vectors):
        made.count = max(line.ret or 0, 0)
        return
    parts = [split(vector, 1)[0] for vector in vectors]
    if any(len(part) != 2 for part in parts):
        raise NotUnderstoodError
    # {iov_base="ab", iov_len=2}, and {"ab", 2} before 4.9
    lengths = (number(length.removeprefix("iov_len=")) for _, length in parts)
    made.count = min(sum(lengths), _MASK >> 1)


def _how(made: Members, _call: Call, _line: Called, at: int, text: str) -> None:
    """Read open_how; strace prints an address if it is unreadable: use values that fail, too."""
    if not text.startswith("{"):
        made.args[at] = made.args[at + 1] = _MASK
        return
    for place, name in ((at, "flags"), (at + 1, "mode")):
        made.args[place] = number(member(text, name) or "0") & _MASK


def _place(made: Members, _call: Call, _line: Called, at: int, text: str) -> None:
    """Read an offset, `[3]` or `[3] => [7]`; without one the position is used (-1)."""
    text_of = split(text.split(" => ", 1)[0], 1)[0] if text.startswith("[") else []
    made.args[at] = number(text_of[0] if text_of else "-1") & _MASK


_Reader = Callable[[Members, Call, Called, int, str], None]
_READERS: dict[str, _Reader] = {
    **dict.fromkeys(("fd", "fd2", "dirfd", "dirfd2"), _descriptor),
    **dict.fromkeys(("flags", "mode", "cmd", "size", "offset"), _number),
    **dict.fromkeys(("uid", "gid", "arg", "iovcnt"), _number),
    "path": _path,
    "path2": _path2,
    **dict.fromkeys(("target", "name"), _name),
    **dict.fromkeys(("stat", "statx"), _stat),
    "flock": _lock,
    **dict.fromkeys(("at", "at2"), _place),
    "iov": _iov,
    "how": _how,
    "clone": _clone,
    "acl": _acl,
}
