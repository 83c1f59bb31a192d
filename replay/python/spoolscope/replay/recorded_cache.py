"""The part of a spool that was in memory when a recording began, put there for a replay.

A full snapshot reads every name and its attributes just before: the recording ran with these in
memory, however cold the server was. Without one, a name was in memory if the first call on it
waited for nothing. The same holds for data in any case: the range of a file that calls read or
write was in memory if the first of them, or the first touch of a mapped page, waited for nothing;
else the replay has to wait for it as well.
"""

import errno
import os
import stat
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from spoolscope.replay import on_disk
from spoolscope.replay.columns import Int, column
from spoolscope.replay.images import names_below
from spoolscope.replay.ops import FAULT, Ops, are
from spoolscope.replay.outcomes import Plan
from spoolscope.traces.abi import S_IFMT
from spoolscope.traces.calls import of_kind
from spoolscope.traces.flat import NO_CALL_ROW, NONE
from spoolscope.traces.results import Cached
from spoolscope.traces.trace import Trace

_DATA = of_kind("read", "write")
_PAGE = 4096
_PIECE = 1 << 20
# Without this program a trace does not show if a call waited.
_SEES_WAITS = "on_switch"


@dataclass(frozen=True)
class Memory:
    """Names and data that were in memory.

    Attributes:
        why: How that is known, in words.
        all_names: Every name was, with its attributes.
        names: The names that were, if not all: paths below the spool.
        data: (path, first byte, past the last) of the range of a file that calls use.
    """

    why: str
    all_names: bool
    names: list[bytes] = field(default_factory=list)
    data: list[tuple[bytes, int, int]] = field(default_factory=list)


def memory_of(trace: Trace, plan: Plan) -> Memory:
    """Return the names and data that were in memory when the recording of a plan began."""
    snapshot = trace.meta.get("snapshot") or {
        "kind": "full" if trace.meta.get("tree", True) else "none"
    }
    whole = snapshot["kind"] == "full"
    programs = trace.meta.get("programs") or {}
    if _SEES_WAITS not in programs.get("attached", ()) or trace.meta.get("imported"):
        why = "the recording does not tell which calls waited"
        return Memory(f"names after its full snapshot; {why}" if whole else why, whole)
    waited = np.concatenate(
        [
            np.zeros(0, bool),
            *(column(t, "blocked_ns", 0) > 0 for t in trace.parts("syscalls", ["blocked_ns"])),
        ]
    )
    data = _data(plan, waited)
    if whole:
        return Memory(
            "names after its full snapshot; data that no call waited for", whole, [], data
        )
    return Memory("names and data that no call waited for", whole, _names(plan, waited), data)


class _Firsts:
    """Finds if the first operation on each of some objects waited; ``free``: it did not."""

    def __init__(self, keys: npt.NDArray[Any]) -> None:
        self.keys = np.unique(keys)
        self.free = np.zeros(len(self.keys), np.bool_)
        self._seen = np.zeros(len(self.keys), np.bool_)

    def at(self, keys: npt.NDArray[Any]) -> tuple[npt.NDArray[np.bool_], Int]:
        """Return which of these keys are among the objects, and their places."""
        at = np.minimum(np.searchsorted(self.keys, keys), max(len(self.keys) - 1, 0))
        known = self.keys[at] == keys if len(self.keys) else np.zeros(len(keys), np.bool_)
        return known, at

    def see(self, at: Int, waited: npt.NDArray[np.bool_]) -> None:
        """Note operations, in order of time, on the objects at these places."""
        met, first = np.unique(at, return_index=True)
        new = ~self._seen[met]
        self._seen[met] = True
        self.free[met[new]] = ~waited[first[new]]


def _waits(ops: Ops, waited: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    calls = ops["call"] != NO_CALL_ROW
    found = (ops["op"] == FAULT) & (ops["arg"] != 0)
    found[calls] = waited[ops["call"][calls].astype(np.int64)]
    matches: npt.NDArray[np.bool_] = found
    return matches


def _data(plan: Plan, waited: npt.NDArray[np.bool_]) -> list[tuple[bytes, int, int]]:
    entries = plan.entries
    files = (entries["mode"] & S_IFMT == stat.S_IFREG) & (entries["ino"] > 0)
    firsts = _Firsts(entries["ino"][files])
    low = np.full(len(firsts.keys), np.iinfo(np.int64).max)
    high = np.zeros(len(firsts.keys), np.int64)
    for part in on_disk.parts(len(plan.ops)):
        ops = plan.ops[part]
        touches = ops["op"] == FAULT
        touches |= are(ops["op"], _DATA) & (ops["ret"] > 0) & (ops["call"] != NO_CALL_ROW)
        ops = ops[touches]
        known, at = firsts.at(ops["ino"])
        ops, at = ops[known], at[known]
        firsts.see(at, _waits(ops, waited))
        begin = np.maximum(ops["offset"], 0)
        np.minimum.at(low, at, begin)
        np.maximum.at(high, at, begin + np.where(ops["op"] == FAULT, _PAGE, ops["ret"]))
    _, name = np.unique(entries["ino"][files], return_index=True)
    paths = entries["path"][files][name]
    return [
        (plan.strings.raw(int(paths[k])), int(low[k]) // _PAGE * _PAGE, int(high[k]))
        for k in np.flatnonzero(firsts.free).tolist()
    ]


def _names(plan: Plan, waited: npt.NDArray[np.bool_]) -> list[bytes]:
    firsts = _Firsts(plan.entries["path"])
    for part in on_disk.parts(len(plan.ops)):
        ops = plan.ops[part]
        ops = ops[(ops["call"] != NO_CALL_ROW) & (ops["path"] != NONE)]
        known, at = firsts.at(ops["path"])
        firsts.see(at[known], _waits(ops[known], waited))
    return [plan.strings.raw(int(firsts.keys[k])) for k in np.flatnonzero(firsts.free).tolist()]


def remember(memory: Memory, place: Path) -> Cached:
    """Read those names and data below a directory that were in memory, and nothing else.

    Raises:
        OSError: the directory, or a name in it, cannot be read.
    """
    looked = sum(_look(at, name) for at, name in names_below(place)) if memory.all_names else 0
    looked += sum(_there(place, name, _look) for name in memory.names)
    buffer = bytearray(_PIECE)
    held = [
        _there(place, name, partial(_read, span=(begin, end), buffer=buffer))
        for name, begin, end in memory.data
    ]
    files = sum(data_bytes > 0 for data_bytes in held)
    return Cached(why=memory.why, names=looked, files=files, data_bytes=sum(held))


def _there(place: Path, path: bytes, use: Callable[[int, bytes], int]) -> int:
    """Return ``use`` of a name in its directory, 0 if it is not there; follow no symlink."""
    *above, last = path.split(b"/")
    if b".." in (*above, last):
        return 0
    at = os.open(place, os.O_PATH | os.O_DIRECTORY)
    try:
        for name in above:
            below = os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=at)
            os.close(at)
            at = below
        return use(at, last)
    except (FileNotFoundError, NotADirectoryError):
        return 0
    except OSError as error:
        if error.errno == errno.ELOOP:
            return 0
        raise
    finally:
        os.close(at)


def _look(at: int, name: bytes) -> int:
    """Read the attributes of a name, also the extended ones, as the recorder does."""
    found = os.stat(name, dir_fd=at, follow_symlinks=False)
    if stat.S_ISLNK(found.st_mode):
        os.readlink(name, dir_fd=at)
    with suppress(OSError):
        os.listxattr(b"/proc/self/fd/%d/%s" % (at, name), follow_symlinks=False)
    return 1


def _read(at: int, name: bytes, span: tuple[int, int], buffer: bytearray) -> int:
    begin, end = span
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
    if not stat.S_ISREG(os.stat(name, dir_fd=at, follow_symlinks=False).st_mode):
        return 0
    file = os.open(name, flags, dir_fd=at)
    try:
        end, held = min(end, os.fstat(file).st_size), 0
        while begin + held < end:
            piece = memoryview(buffer)[: min(_PIECE, end - begin - held)]
            got = os.preadv(file, [piece], begin + held)
            if not got:
                break
            held += got
        return held
    finally:
        os.close(file)
