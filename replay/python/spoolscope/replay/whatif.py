"""Calls left out of a replay on purpose, to ask what they cost."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from spoolscope.traces.calls import BY_ID, CALLS
from spoolscope.traces.errors import USAGE, SpoolscopeError
from spoolscope.traces.flat import NO_CALL_ROW

FSYNCS = ("fsync", "fdatasync")
# Nothing that another call finds depends on these: no name, no byte, no descriptor, no lock.
HARMLESS = {
    *(call.name for call in CALLS.values() if call.klass == "sync"),
    *("msync", "fadvise64", "readahead"),
    *("stat", "lstat", "fstat", "newfstatat", "statx", "statfs", "fstatfs"),
    *("access", "faccessat", "faccessat2", "readlink", "readlinkat"),
    *(call.name for call in CALLS.values() if call.name.endswith(("getxattr", "listxattr"))),
}


@dataclass(frozen=True)
class WhatIf:
    """What is left out.

    Attributes:
        skip: Calls of these names.
        fsync_every: Of each thread's fsync and fdatasync, only every N-th is made.
    """

    skip: frozenset[str] = frozenset()
    fsync_every: int = 1

    def left_out(self, ops: npt.NDArray[np.void]) -> npt.NDArray[np.bool_]:
        """Return which operations of a plan are left out."""
        gone: npt.NDArray[np.bool_] = np.isin(ops["op"], [CALLS[name].id for name in self.skip])
        syncs = np.flatnonzero(np.isin(ops["op"], [CALLS[name].id for name in FSYNCS]) & ~gone)
        syncs = syncs[np.lexsort((ops["start_ns"][syncs], ops["thread"][syncs]))]
        thread = ops["thread"][syncs]
        number = np.arange(len(syncs)) - np.searchsorted(thread, thread)
        gone[syncs[(number + 1) % self.fsync_every != 0]] = True
        gone &= ops["call"] != NO_CALL_ROW
        return gone

    def told(self, left_out: Mapping[str, int]) -> dict[str, Any] | None:
        """Return what run.json says of it, None if nothing was asked for.

        Args:
            left_out: How many calls were left out, by name.
        """
        words = [f"without {name}" for name in sorted(self.skip)]
        if self.fsync_every > 1:
            words.append(f"with every {self.fsync_every}. fsync")
        if not words:
            return None
        said = ", ".join(f"{n:,} {name}" for name, n in left_out.items()) or "nothing was"
        return {
            "label": " and ".join(words),
            "left_out": dict(left_out),
            "sentence": f"WHAT IF: {said} left out; this is not what the trace did.",
        }


WHOLE = WhatIf()


def parse(skip: Sequence[str], fsync_every: int) -> WhatIf:
    """Read names of calls, or a class all of whose calls may be left out.

    Raises:
        SpoolscopeError: a name is unknown, or other calls depend on what that call does.
    """
    names: set[str] = set()
    for word in skip:
        asked = {call.name for call in CALLS.values() if word in (call.name, call.klass)}
        if not asked or not asked <= HARMLESS:
            why = "other calls depend on what they do" if asked else "there is no such call"
            raise SpoolscopeError(
                f"calls '{word}' cannot be left out: {why}",
                remedy="give sync (all of that class), or one of " + ", ".join(sorted(HARMLESS)),
                exit_code=USAGE,
            )
        names |= asked
    return WhatIf(frozenset(names), fsync_every)


def by_name(ops: npt.NDArray[np.void]) -> dict[str, int]:
    """Count operations by name, the most frequent first."""
    numbers, counts = np.unique(ops["op"], return_counts=True)
    order = np.argsort(-counts, kind="stable")
    return {BY_ID[int(numbers[at])].name: int(counts[at]) for at in order}
