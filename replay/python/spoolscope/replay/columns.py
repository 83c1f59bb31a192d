"""Columns of a trace's tables as arrays."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spoolscope.traces.trace import Trace

Int = npt.NDArray[np.int64]


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
