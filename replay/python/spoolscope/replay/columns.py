"""Columns of a trace's tables as arrays."""

from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spoolscope.traces.abi import S_IFDIR, S_IFMT
from spoolscope.traces.filesystems import SUBVOLUMES
from spoolscope.traces.trace import Trace

Int = npt.NDArray[np.int64]
BTRFS_FIRST_FREE_OBJECTID = 256


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
    """Return whether a trace has several spools, each of which is a directory of the target.

    A trace with files that entered or left its spool counts, too: they have a directory beside it.
    """
    return len(trace.meta.get("spools", [])) > 1 or has_crossings(trace)


def has_crossings(trace: Trace) -> bool:
    """Return whether something was renamed or linked into the spool, or out of it."""
    edge = trace.meta.get("edge") or {}
    return any(edge.get(f"{how}_{way}") for how in ("renamed", "linked") for way in ("in", "out"))


def numbers(trace: Trace, table: pa.Table) -> npt.NDArray[np.uint64]:
    """Return inode numbers, 0 unknown.

    They are unique per device only; with several spools the device is mixed in.
    """
    ino = column(table, "ino", 0).astype(np.uint64)
    if not are_several(trace):
        return ino
    dev = column(table, "dev", 0).astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    return np.where(ino > 0, ino ^ dev, np.uint64(0))


def identity(trace: Trace, table: pa.Table) -> npt.NDArray[np.uint64]:
    """Return inode numbers as identities of objects; 0 where numbers are not unique."""
    if have_subvolumes(trace):
        return np.zeros(table.num_rows, np.uint64)
    return numbers(trace, table)


def have_subvolumes(trace: Trace) -> bool:
    """Return whether the snapshot shows several subvolumes of a btrfs below one spool.

    Each subvolume numbers its inodes by itself, and a snapshot repeats all of its origin's.
    """
    file = trace.file("tree")
    if not any(spool.get("fstype") in SUBVOLUMES for spool in trace.meta.get("spools", [])):
        return False
    return file.exists() and _subvolumes(file.parent, file.stat().st_mtime_ns)


@lru_cache(maxsize=4)
def _subvolumes(directory: Path, _written_ns: int) -> bool:
    """Look for several root directories of subvolumes: all have the same inode number."""
    roots: dict[int, int] = {}
    for tree in Trace.open(directory).parts("tree", ("dev", "ino", "mode")):
        found = column(tree, "ino") == BTRFS_FIRST_FREE_OBJECTID
        found &= column(tree, "mode", 0) & S_IFMT == S_IFDIR
        for dev in column(tree, "dev", 0)[found].tolist():
            roots[dev] = roots.get(dev, 0) + 1
    return max(roots.values(), default=0) > 1
