"""Choice of the calls to replay: those of some processes, or on some mailboxes."""

from collections import Counter
from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Any

import numpy as np
import numpy.typing as npt

from spoolscope.replay.outcomes import Plan
from spoolscope.traces.errors import USAGE, SpoolscopeError
from spoolscope.traces.flat import NO_CALL_ROW, NONE

LISTED = 8
Mask = npt.NDArray[np.bool_]


def chosen(plan: Plan, only: Sequence[str]) -> Mask:
    """Return which operations of a plan are chosen by at least one of some words.

    A word is a process id, a name of processes (may have ``*``), or a directory below the spool:
    a mailbox with all that lies in it.

    Raises:
        SpoolscopeError: a word chooses no call.
    """
    found = np.zeros(len(plan.ops), np.bool_)
    calls = plan.ops["call"] != NO_CALL_ROW
    for word in only:
        mask = _of_process(plan, word) | _of_mailbox(plan, word)
        if not (mask & calls).any():
            raise _nothing(plan, word)
        found |= mask
    return found


def of_processes(pid: npt.NDArray[Any], comm: npt.NDArray[Any], only: Sequence[str]) -> Mask:
    """Return which threads, given by process id and name, some words choose."""
    names = [name.decode(errors="replace") for name in comm.tolist()] if only else []
    found = np.zeros(len(pid), np.bool_)
    for word in only:
        if word.isdecimal():
            found |= pid == int(word)
        else:
            found |= np.array([fnmatchcase(name, word) for name in names], np.bool_)
    return found


def directory_of(word: str) -> str:
    """Return the directory that a word may stand for, as a plan names it."""
    return word.strip("/")


def _of_process(plan: Plan, word: str) -> Mask:
    threads = of_processes(plan.threads["pid"], plan.threads["comm"], [word])
    mask: Mask = threads[plan.ops["thread"]]
    return mask


def _of_mailbox(plan: Plan, word: str) -> Mask:
    directory = directory_of(word)
    inside = [name == directory or name.startswith(f"{directory}/") for name in plan.strings]
    names = np.append(np.array(inside, np.bool_), False)
    of = (np.where(plan.ops[name] == NONE, len(inside), plan.ops[name]) for name in _PATHS)
    mask: Mask = np.logical_or.reduce([names[path] for path in of])
    return mask


_PATHS = ("path", "path2")


def _nothing(plan: Plan, word: str) -> SpoolscopeError:
    names = plan.threads["comm"][plan.ops["thread"]].tolist()
    known = ", ".join(
        name.decode(errors="replace") for name, _ in Counter(names).most_common(LISTED)
    )
    return SpoolscopeError(
        f"no call is of a process or on a mailbox '{word}'",
        remedy=f"give a pid, a directory below the spool, or a process: {known}",
        exit_code=USAGE,
    )
