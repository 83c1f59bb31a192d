"""Symlinks that calls show and no snapshot has, with the lengths of their targets.

An imported trace has the target where readlink was called. Every other link gets one of the same
length in its directory that is no recorded name; files reached through the link are planned under
that name (see ``symlinks.py``).
"""

import errno
from collections.abc import Iterable, Mapping
from stat import S_IFLNK

import numpy as np

from spoolscope.replay.calls import Calls
from spoolscope.replay.ops import Ops, are
from spoolscope.replay.strings import Strings
from spoolscope.traces.abi import O_NOFOLLOW, S_IFMT
from spoolscope.traces.calls import CALLS, of_kind
from spoolscope.traces.constants import ENTRY_TYPE_ONLY
from spoolscope.traces.flat import DTYPES, NONE
from spoolscope.traces.trace import Trace

_READING, _OPENING = of_kind("readlink"), of_kind("open")
_LOOKING = tuple(name for name in of_kind("stat") if name != "stat")  # stat itself follows links
_SHOWING = (*_READING, *_OPENING, *_LOOKING)
_READ_IDS = [CALLS[name].id for name in _READING]
_UNKNOWN_LENGTH = 8
# A component of a name has at most 255 bytes.
_LONGEST_NAME = 200
_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"


def seen(trace: Trace, calls: Calls, strings: Strings) -> Ops:
    """Return the first call that shows each link, in order of time.

    ``size`` is the length of the link's target, as far as a call shows it, and ``path2`` the target
    itself. A full snapshot has all links: then none is returned.
    """
    nothing: Ops = np.zeros(0, DTYPES["plan_op"])
    if trace.meta.get("snapshot", {}).get("kind") == "full" or not calls.any_of(_SHOWING):
        return nothing
    first: dict[int, np.void] = {}
    for ops in calls.named(_SHOWING, strings):
        reads, opens = are(ops["op"], _READING), are(ops["op"], _OPENING)
        link = ((ops["obj_mode"] & S_IFMT == S_IFLNK) | reads) & (ops["ret"] >= 0)
        link |= opens & (ops["ret"] == -errno.ELOOP) & (ops["flags"] & O_NOFOLLOW > 0)
        for op in ops[link & (ops["path"] != NONE)]:
            # A target that was read to its end has a known length; stat's is exact, too.
            read = op["op"] in _READ_IDS
            whole = op["ret"] < op["size"]
            length = int(op["ret"]) if read and whole else int(op["obj_size"])
            known = first.setdefault(int(op["path"]), _with_size(op, length))
            if known["size"] <= 0 < length:
                known["size"] = length
            if known["ino"] == 0:
                known["ino"] = op["ino"]
            if read and known["path2"] == NONE:
                known["path2"] = op["path2"]
    found = [op for path, op in first.items() if strings.text(path)]
    return np.array(found, DTYPES["plan_op"]) if found else nothing


def at_start(links: Ops, changes: Ops, strings: Strings) -> Ops:
    """Return those links that no call had put there before the first one that shows them.

    Args:
        links: Calls that ``seen`` returned.
        changes: Calls that make, move or remove these names or those above them, by end time.
        strings: Names by number.
    """
    changed: dict[bytes, int] = {}
    for op in changes:
        for member in ("path", "path2"):
            if op[member] != NONE:
                changed.setdefault(strings.text(int(op[member])), int(op["end_ns"]))

    def stood(op: np.void) -> bool:
        first = [changed[name] for name in _up(strings.text(int(op["path"]))) if name in changed]
        return not first or min(first) > op["start_ns"]

    return links[np.array([stood(op) for op in links], np.bool_)]


def targets(links: Ops, strings: Strings) -> dict[bytes, bytes]:
    """Return a target for each link: the one that was read, or else no name of the trace."""
    found: dict[bytes, bytes] = {}
    taken: dict[bytes, int] = {}
    for op in links:
        name = strings.text(int(op["path"]))
        if op["path2"] != NONE:
            found[name] = strings.text(int(op["path2"]))
            continue
        directory = name.rpartition(b"/")[0]
        length = int(op["size"]) if op["size"] > 0 else _UNKNOWN_LENGTH
        number = taken.get(directory, 0)
        while strings.known([_joined(directory, text := _text(number, length))]):
            number += 1
        taken[directory] = number + 1
        found[name] = text
    return found


def entries(links: Ops, said: Mapping[bytes, bytes], strings: Strings) -> Ops:
    """Return the links as the snapshot would have shown them."""
    made: Ops = np.zeros(len(links), DTYPES["plan_entry"])
    for name in ("path", "ino"):
        made[name] = links[name]
    names = [strings.text(int(path)) for path in links["path"]]
    made["target"] = [strings.add(said[name]) for name in names]
    made["size"] = [len(said[name]) for name in names]
    made["mode"], made["flags"] = S_IFLNK | 0o777, ENTRY_TYPE_ONLY
    return made


def _with_size(op: np.void, length: int) -> np.void:
    copy: np.void = op.copy()
    copy["size"] = length
    if copy["op"] not in _READ_IDS:
        copy["path2"] = NONE
    return copy


def _text(number: int, length: int) -> bytes:
    """Return a relative name of the given length, a different one for each number."""
    digits = ""
    while number or not digits:
        number, digit = divmod(number, len(_DIGITS))
        digits = _DIGITS[digit] + digits
    beyond = max(length - _LONGEST_NAME, 0) // 2
    return ("./" * beyond + digits.rjust(length - 2 * beyond, "~")).encode()


def _joined(directory: bytes, name: bytes) -> bytes:
    return directory + b"/" + name if directory else name


def _up(name: bytes) -> Iterable[bytes]:
    while name:
        yield name
        name = name.rpartition(b"/")[0]
