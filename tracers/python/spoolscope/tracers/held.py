"""Locks and mappings of spool files that processes held when the recording began."""

from collections.abc import Callable
from typing import Any

import numpy as np

from spoolscope.tracers.inodes import Inodes
from spoolscope.traces.capture import Capture, Records
from spoolscope.traces.columns import symbols

Columns = dict[str, Any]
# Names of enum spsc_lock_kind.
KINDS = ("", "posix", "ofd", "flock", "lease")
PROTECTION, SHARED = 7, 8


def lock_columns(capture: Capture, inodes: Callable[[], Inodes]) -> Columns:
    """Return one row per lock on a file of the spool."""
    rows = capture.records["held_lock"]
    return {
        **_found(capture, rows, inodes),
        "pid": np.ma.masked_equal(rows["pid"].astype(np.int32), 0),
        "kind": symbols(rows["kind"], KINDS),
        "exclusive": rows["exclusive"] > 0,
        "waiting": rows["waiting"] > 0,
        "start": rows["start"],
        "length": np.ma.masked_equal(rows["length"], 0),
    }


def mapping_columns(capture: Capture, inodes: Callable[[], Inodes]) -> Columns:
    """Return one row per mapping of a file of the spool."""
    rows = capture.records["mapping"]
    return {
        **_found(capture, rows, inodes),
        "pid": rows["pid"].astype(np.int32),
        "address": rows["address"].astype(np.int64),
        "length": rows["length"].astype(np.int64),
        "offset": rows["offset"].astype(np.int64),
        "prot": (rows["flags"] & PROTECTION).astype(np.int32),
        "shared": rows["flags"] & SHARED > 0,
    }


def _found(capture: Capture, rows: Records, inodes: Callable[[], Inodes]) -> Columns:
    """Return the columns that identify the file, with its name at that time."""
    paths = np.zeros(0, np.int64)
    if len(rows):  # collecting the names by inode is expensive
        paths = inodes().path(rows["dev"], rows["ino"], rows["ts_ns"])
    shift = capture.start_real_ns - capture.start_mono_ns
    return {
        "ts_ns": rows["ts_ns"].astype(np.int64) + shift,
        "path_id": np.ma.masked_less(paths, 0),
        "dev": rows["dev"].astype(np.int64),
        "ino": rows["ino"].astype(np.int64),
    }
