"""Words that choose calls: of some processes, or on some mailboxes."""

from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Any

import numpy as np
import numpy.typing as npt

Mask = npt.NDArray[np.bool_]


def of_processes(pid: npt.NDArray[Any], comm: npt.NDArray[Any], only: Sequence[str]) -> Mask:
    """Return which threads, given by process id and name, some words choose.

    A word is a process id, a name of processes (may have ``*``), or a directory below the spool.
    The replayer chooses the operations of a plan by the same words (`replay/src/only/by_words.rs`).
    """
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
