"""Columns of a trace's tables as arrays."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spoolscope.traces.trace import Trace

Int = npt.NDArray[np.int64]
S_IFMT, S_IFDIR = 0o170000, 0o040000


def column(table: pa.Table, name: str, missing: int = -1) -> Int:
    """Return an integer column, perhaps a view that cannot be written; nulls become ``missing``."""
    return filled(table, name, missing).astype(np.int64, copy=False)


def filled(table: pa.Table, name: str, missing: int) -> npt.NDArray[Any]:
    """Return an integer column in its own type, as ``column`` does."""
    values = table[name].combine_chunks()
    if values.null_count:
        values = values.fill_null(missing)
    found: npt.NDArray[Any] = values.to_numpy()
    return found


def are_several(trace: Trace) -> bool:
    """Tell whether a trace is of several spools."""
    return len(trace.meta.get("spools", [])) > 1


def identity(trace: Trace, table: pa.Table) -> npt.NDArray[np.uint64]:
    """Return what tells objects apart.

    Inode numbers are unique per device only; with several spools the device is mixed in.
    """
    ino = column(table, "ino", 0).astype(np.uint64)
    if not are_several(trace):
        return ino
    dev = column(table, "dev", 0).astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    return np.where(ino > 0, ino ^ dev, np.uint64(0))


def repeated(trace: Trace) -> npt.NDArray[np.uint64]:
    """Return identities that the tree shows at several directories.

    Each subvolume of a btrfs numbers its inodes by itself, and a snapshot repeats all of them:
    where two are below one spool, numbers do not tell objects apart.
    """
    if not any(spool.get("fstype") == "btrfs" for spool in trace.meta.get("spools", [])):
        return np.zeros(0, np.uint64)
    parts = [
        (identity(trace, tree), column(tree, "mode", 0), column(tree, "nlink", 1))
        for tree in trace.parts("tree", ("dev", "ino", "mode", "nlink"))
    ]
    if not parts:
        return np.zeros(0, np.uint64)
    number, mode, links = map(np.concatenate, zip(*parts, strict=True))
    directory = mode & S_IFMT == S_IFDIR
    _, times = np.unique(number[directory], return_counts=True)
    if not (times > 1).any():
        return np.zeros(0, np.uint64)
    numbers, which, times = np.unique(number, return_inverse=True, return_counts=True)
    most = np.zeros(len(numbers), np.int64)
    np.maximum.at(most, which, np.where(directory, 1, links))
    found: npt.NDArray[np.uint64] = numbers[times > most]
    return found
