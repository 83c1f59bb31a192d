"""Calls that use a descriptor or path, open a file, remove or rename it: most of a mail server's.

They need no more than their names, so they are told apart column by column; only the others become
rows of Python values.
"""

import errno

import numpy as np
import numpy.typing as npt

from spoolscope.tracers.effects import SHAPES, Shape, changes, flags_at, implied_flags
from spoolscope.traces.abi import AT_FDCWD, DUPLICATES, F_SETFD
from spoolscope.traces.calls import CALLS, MARKS, of_effect, of_kind
from spoolscope.traces.capture import Records

OTHER, PLAIN, IDLE, CLOSE, LOOK, OPEN, REMOVE, RENAME = range(8)
"""A call that is none of them; one that uses its descriptor only; one that might have changed a
descriptor and did not; one that only ends its descriptor, even if it fails; one that uses its path
only; one that opened the file at its path; one that removed its path; one that renamed it."""

# Commands by which a call of these names changes descriptors.
_COMMANDS = dict(
    zip(of_kind("fcntl", "clone"), ((*DUPLICATES, F_SETFD), tuple(MARKS)), strict=True)
)


def _only_uses(shape: Shape) -> bool:
    """Return whether a call has a descriptor and no path, and perhaps changes nothing."""
    pathless = max(shape.path, shape.path2) < 0 and not shape.mounts
    return (
        pathless
        and max(shape.fd, shape.dirfd) >= 0
        and (not changes(shape) or shape.name in _COMMANDS)
    )


_POSITION = np.array([shape.fd if shape.fd >= 0 else shape.dirfd for shape in SHAPES])
_USES = np.array([_only_uses(shape) for shape in SHAPES])
_CLOSE = CALLS["close"].id
_HAS_TEXT = np.array([shape.has_text for shape in SHAPES])
_CHANGES = np.array([changes(shape) for shape in SHAPES])
_WITH_PATH = np.array(
    [
        shape.path >= 0 > shape.fd and not shape.mounts and not shape.is_exec
        for shape in SHAPES
    ]
)  # fmt: skip
_TWO_NAMES = np.array([shape.has_text or shape.path2 >= 0 for shape in SHAPES])
_AT = np.array([shape.dirfd >= 0 for shape in SHAPES])
_FLAGS = np.array([flags_at(shape) for shape in SHAPES])
_IMPLIED = np.array([implied_flags(shape) for shape in SHAPES], np.uint64)
_SECOND = np.array([shape.dirfd2 for shape in SHAPES])


def _with(effect: str) -> npt.NDArray[np.bool_]:
    """Return which calls have an effect, by number."""
    return np.isin(np.arange(len(SHAPES)), [CALLS[name].id for name in of_effect(effect)])


_OPENS, _REMOVES, _RENAMES = (_with(effect) for effect in ("opens", "removes", "renames"))


def kinds_of(calls: Records) -> npt.NDArray[np.int8]:
    """Return OTHER, PLAIN, IDLE, CLOSE, LOOK, OPEN, REMOVE or RENAME for each call."""
    number, failed, given = calls["call"], calls["ret"] < 0, calls["path"] > 0
    second = calls["path2"] > 0
    plain = _USES[number] & ~(_HAS_TEXT[number] & second)
    one_name = _WITH_PATH[number] & ~(_TWO_NAMES[number] & second) & (failed | ~_CHANGES[number])
    kinds = np.where(plain | (one_name & ~given & _AT[number]), PLAIN, OTHER).astype(np.int8)
    kinds[one_name & given] = LOOK
    done = given & ~failed
    kinds[_OPENS[number] & done] = OPEN
    kinds[_REMOVES[number] & done] = REMOVE
    kinds[_RENAMES[number] & done & second] = RENAME
    kinds[number == _CLOSE] = CLOSE
    for name, commands in _COMMANDS.items():
        if name not in CALLS:
            continue
        these = plain & (number == CALLS[name].id)
        does = np.isin(calls["args"][these, 1].astype(np.uint32), np.array(commands, np.uint32))
        kinds[these] = np.where(does, OTHER, np.where(failed[these], PLAIN, IDLE))
    return kinds


def descriptors_of(calls: Records) -> npt.NDArray[np.int32]:
    """Return the descriptor that each call uses or begins at, AT_FDCWD if it has none."""
    return _descriptors(calls, _POSITION[calls["call"]])


def second_descriptors_of(calls: Records) -> npt.NDArray[np.int32]:
    """Return the descriptor at which the second path of each call begins, AT_FDCWD if none."""
    return _descriptors(calls, _SECOND[calls["call"]])


def _descriptors(calls: Records, at: npt.NDArray[np.int64]) -> npt.NDArray[np.int32]:
    used = calls["args"][np.arange(len(calls)), at.clip(0)]
    descriptors: npt.NDArray[np.int32] = used.astype(np.uint32).view(np.int32)
    descriptors[at < 0] = AT_FDCWD
    return descriptors


def flags_of(calls: Records) -> npt.NDArray[np.uint64]:
    """Return the flags with which calls opened, removed or renamed files."""
    at = _FLAGS[calls["call"]]
    flags: npt.NDArray[np.uint64] = calls["args"][np.arange(len(calls)), at.clip(0)]
    implied = at < 0
    flags[implied] = _IMPLIED[calls["call"][implied]]
    return flags


def without_path(calls: Records) -> npt.NDArray[np.bool_]:
    """Return which calls might have had a path and named the object of a descriptor without one."""
    given = (calls["path"] > 0) | (calls["ret"] == -errno.ENOENT)  # an empty path names nothing
    without: npt.NDArray[np.bool_] = _WITH_PATH[calls["call"]] & ~given
    return without
