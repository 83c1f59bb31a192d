"""Calls that use a descriptor and change nothing else: most of those of a mail server.

They need no more than the name of the descriptor's file, so they are told apart column by column;
only the others become rows of Python values.
"""

import numpy as np
import numpy.typing as npt

from spoolscope.tracers.effects import SHAPES, Shape, changes
from spoolscope.traces.abi import DUPLICATES, F_SETFD
from spoolscope.traces.calls import CALLS, MARKS, of_kind
from spoolscope.traces.capture import Records

OTHER, PLAIN, IDLE, CLOSE = range(4)
"""A call that is none of them; a plain one; one that might have changed something and did not; one
that only ends its descriptor, even if it fails."""

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


_POSITION = np.array([shape.fd if shape.fd >= 0 else max(shape.dirfd, 0) for shape in SHAPES])
_USES = np.array([_only_uses(shape) for shape in SHAPES])
_CLOSE = CALLS["close"].id
_HAS_TEXT = np.array([shape.has_text for shape in SHAPES])


def kinds_of(calls: Records) -> npt.NDArray[np.int8]:
    """Return OTHER, PLAIN, IDLE or CLOSE for each call."""
    number = calls["call"]
    plain = _USES[number] & ~(_HAS_TEXT[number] & (calls["path2"] > 0))
    kinds = np.where(plain, PLAIN, OTHER).astype(np.int8)
    kinds[number == _CLOSE] = CLOSE
    for name, commands in _COMMANDS.items():
        if name not in CALLS:
            continue
        these = plain & (number == CALLS[name].id)
        given = np.isin(calls["args"][these, 1].astype(np.uint32), np.array(commands, np.uint32))
        kinds[these] = np.where(given, OTHER, np.where(calls["ret"][these] < 0, PLAIN, IDLE))
    return kinds


def descriptors_of(calls: Records) -> npt.NDArray[np.int32]:
    """Return the descriptor that each call uses; any number if it uses none."""
    used = calls["args"][np.arange(len(calls)), _POSITION[calls["call"]]]
    descriptors: npt.NDArray[np.int32] = used.astype(np.uint32).view(np.int32)
    return descriptors
