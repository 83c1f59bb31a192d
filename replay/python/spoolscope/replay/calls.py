"""Recorded calls as operations, one row group of the trace after the other."""

import errno
import fcntl
import os
from collections.abc import Iterable, Iterator
from stat import S_IFREG, S_IFSOCK

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spoolscope.replay.columns import Int, are_several, column, filled, identity
from spoolscope.replay.ops import Ops, are, picked
from spoolscope.replay.strings import Strings
from spoolscope.replay.threads import Lives, begin_ns
from spoolscope.replay.unmade import Asked
from spoolscope.traces.abi import AT_EMPTY_PATH, AT_SYMLINK_NOFOLLOW
from spoolscope.traces.calls import CALLS, MARKS, of_effect
from spoolscope.traces.constants import CALL_ELSEWHERE, CALL_IN_FLIGHT
from spoolscope.traces.flat import DTYPES, NONE
from spoolscope.traces.trace import Trace

EXITING = of_effect("exits")
# Calls processed at once.
PIECE = 1 << 15
# The highest descriptor that a plan may hold: MAX_FD of plan.rs.
HIGHEST_FD = 65_535
UNKNOWN = 999  # no call has this id: skipped as unsupported
# Half of the columns: reading takes a good part of the time of planning.
_COLUMNS = (
    "ts_ns", "dur_ns", "tid", "syscall", "flags_seen", "ret", "errno", "fd", "fd2", "dirfd",
    "dirfd2", "path_id", "path2_id", "given_id", "given2_id", "path_base", "path2_base", "flags",
    "mode", "cmd", "arg", "offset", "size", "ino", "obj_mode", "obj_size", "lock_type",
)  # fmt: skip
# Calls that write at the file position if they have no offset of their output.
_PLACED = tuple(name for name, call in CALLS.items() if call.position("at2") is not None)
# Calls with an iovec. The recorder adds up at most 64 lengths: the size is at least the result.
_IN_PIECES = tuple(name for name, call in CALLS.items() if call.position("iov") is not None)
# Results that bind and mknod have for the same reasons; 0 is success.
_OF_NAMES = (
    0, errno.EADDRINUSE, errno.ENOENT, errno.ENOTDIR, errno.EACCES, errno.EPERM, errno.ELOOP,
    errno.ENOSPC, errno.EDQUOT, errno.EROFS,
)  # fmt: skip
# Calls that may set an access ACL.
SET_ACL = tuple(name for name, call in CALLS.items() if call.position("acl") is not None)
_PLAIN = ("fd", "fd2", "dirfd", "dirfd2", "flags", "mode", "cmd")


class Calls:
    """The calls of a trace.

    Attributes:
        rows: Calls read so far, in the last pass.
        in_flight: Calls asked for that never returned; left out.
        strangers: Calls asked for of threads that the trace does not know; left out.
        elsewhere: Calls asked for on other filesystems, mounted below the spool meanwhile, and
            those that mounted and unmounted them; left out.
        before_start: Calls that returned before the moment that the snapshot shows; left out.

    Args:
        trace: An opened trace.
        lives: Its threads.
        asked: The part whose calls are counted.
    """

    def __init__(self, trace: Trace, lives: Lives, asked: Asked) -> None:
        self._trace, self._lives, self._asked = trace, lives, asked
        self.rows = self.in_flight = self.strangers = self.elsewhere = self.before_start = 0

    def any_of(self, names: Iterable[str]) -> bool:
        """Return whether there may be calls of these names, without reading more than names."""
        wanted = set(names)
        groups = self._trace.parts("syscalls", ("syscall",))
        return any(wanted & set(group["syscall"].unique().to_pylist()) for group in groups)

    def named(self, names: tuple[str, ...], strings: Strings) -> Iterator[Ops]:
        """Yield the calls of these names that are replayed, in order of time."""
        for table, first in self._tables():
            chosen = np.flatnonzero(are(_call_ids(table), names))
            yield self._replayed(table.take(chosen), chosen + first, strings)

    def ops(self, strings: Strings) -> Iterator[Ops]:
        """Yield all calls that are replayed, in order of time."""
        self.in_flight = self.strangers = self.elsewhere = self.before_start = 0
        for table, first in self._tables():
            yield self._replayed(table, np.arange(first, first + table.num_rows), strings)

    def _replayed(self, table: pa.Table, rows: Int, strings: Strings) -> Ops:
        ops = self._timed(table, rows)
        self._describe(table, ops, strings)
        kept = self._kept(table, ops)
        return ops if kept.all() else picked(ops, kept)

    def _tables(self) -> Iterator[tuple[pa.Table, int]]:
        self.rows = 0
        columns = _COLUMNS + (("dev",) if are_several(self._trace) else ())
        columns += ("pid",) if self._asked.by_process else ()
        for group in self._trace.parts("syscalls", columns):
            for at in range(0, group.num_rows, PIECE):
                table = group.slice(at, PIECE)
                yield table, self.rows
                self.rows += table.num_rows

    def _timed(self, table: pa.Table, rows: Int) -> Ops:
        ops = np.zeros(table.num_rows, DTYPES["plan_op"])
        since = column(table, "ts_ns") - begin_ns(self._trace)
        start = np.maximum(since, 0)
        ops["start_ns"], ops["end_ns"] = start, since + column(table, "dur_ns")
        error = column(table, "errno", 0)
        ops["ret"] = np.where(error != 0, -error, column(table, "ret"))
        ops["call"] = rows
        ops["op"] = _call_ids(table)
        thread = self._lives.find(column(table, "tid"), start)
        ops["thread"] = np.where(thread >= 0, thread, NONE)
        return ops

    def _kept(self, table: pa.Table, ops: Ops) -> npt.NDArray[np.bool_]:
        """Return which calls are replayed, and count the others."""
        in_flight = column(table, "flags_seen", 0) & CALL_IN_FLIGHT > 0
        in_flight &= ~are(ops["op"], EXITING)  # never return
        before = ops["end_ns"] <= 0  # the snapshot shows their effects
        before &= ~in_flight
        strangers = (ops["thread"] == NONE) & ~in_flight & ~before
        self.before_start += int(before.sum())
        self.in_flight += self._count(table, ops, in_flight)
        self.strangers += self._count(table, ops, strangers)
        elsewhere = column(table, "flags_seen", 0) & CALL_ELSEWHERE > 0
        elsewhere &= ~(in_flight | strangers | before)
        self.elsewhere += self._count(table, ops, elsewhere)
        kept: npt.NDArray[np.bool_] = ~(in_flight | strangers | before | elsewhere)
        return kept

    def _count(self, table: pa.Table, ops: Ops, which: npt.NDArray[np.bool_]) -> int:
        if not which.any():
            return 0
        pids = column(table, "pid")[which] if self._asked.by_process else None
        return self._asked.count(picked(ops, which), pids)

    def _describe(self, table: pa.Table, ops: Ops, strings: Strings) -> None:
        ops["path"] = strings.of(column(table, "path_id"))
        ops["path2"] = strings.of(column(table, "path2_id"))
        for name in ("given", "given2"):
            ops[name] = strings.of(column(table, f"{name}_id"))
        for name in _PLAIN:
            ops[name] = filled(table, name, 0 if name in ("flags", "mode", "cmd") else -1)
        # close_range up to INT_MAX, as CPython's subprocess calls it, means all that follow; a
        # call that failed may have any number.
        ranges = ops["op"] == CALLS["close_range"].id
        for name, end in (("fd", HIGHEST_FD), ("fd2", -1)):
            beyond = ops[name] > HIGHEST_FD
            ops[name][beyond & (ops["ret"] < 0)] = -1
            ops[name][beyond & ranges] = end
        for name in ("offset", "size", "obj_size"):
            ops[name] = filled(table, name, -1)
        if (pieces := are(ops["op"], _IN_PIECES)).any():
            ops["size"] = np.where(pieces, np.maximum(ops["size"], ops["ret"]), ops["size"])
        for name in ("arg", "obj_mode"):
            ops[name] = filled(table, name, 0)
        if (placed := are(ops["op"], _PLACED)).any():
            ops["arg"][placed & table["arg"].is_null().to_numpy()] = -1
        if (binds := ops["op"] == CALLS["bind"].id).any():
            _bind(ops, binds)
        if (trees := ops["op"] == CALLS["open_tree"].id).any():
            _open_tree(ops, trees)
        if (acls := are(ops["op"], SET_ACL)).any():
            acls &= table["mode"].is_valid().to_numpy()
            ops["mode"][acls] |= S_IFREG  # marks a known mode: mode_by_acl() of attributes.rs
        if (ioctls := ops["op"] == CALLS["ioctl"].id).any():
            _mark(ops, ioctls)
        ops["ino"] = identity(self._trace, table)
        ops["base"], ops["base2"] = filled(table, "path_base", 0), filled(table, "path2_base", 0)
        lock = column(table, "lock_type", 0)
        ops["lock_type"], ops["lock_whence"] = lock & 0xFF, lock >> 8


def _bind(ops: Ops, binds: npt.NDArray[np.bool_]) -> None:
    """Turn bind into mknod, which makes the socket's name: no more of sockets is replayed."""
    alike = np.isin(-np.minimum(ops["ret"], 0), _OF_NAMES)
    ops["op"][binds] = np.where(alike[binds], CALLS["mknod"].id, UNKNOWN)
    ops["mode"][binds] = S_IFSOCK | 0o777
    ops["ret"][binds & (ops["ret"] == -errno.EADDRINUSE)] = -errno.EEXIST


def _open_tree(ops: Ops, trees: npt.NDArray[np.bool_]) -> None:
    """Turn open_tree into openat: later calls use the directory, or the copy of its mount."""
    given = ops["flags"][trees]
    ops["op"][trees] = np.where(given & AT_EMPTY_PATH > 0, UNKNOWN, CALLS["openat"].id)
    link = np.where(given & AT_SYMLINK_NOFOLLOW > 0, os.O_NOFOLLOW, 0)
    ops["flags"][trees] = os.O_PATH | given & os.O_CLOEXEC | link


def _mark(ops: Ops, ioctls: npt.NDArray[np.bool_]) -> None:
    """Turn ioctls that set or clear close-on-exec into fcntl, which the engine follows.

    One that failed stays: fcntl takes descriptors that ioctl does not take (O_PATH).
    """
    for command, closes in MARKS.items():
        where = ioctls & (ops["cmd"] == command) & (ops["ret"] >= 0)
        ops["op"][where] = CALLS["fcntl"].id
        ops["cmd"][where], ops["arg"][where] = fcntl.F_SETFD, fcntl.FD_CLOEXEC * closes


def _call_ids(table: pa.Table) -> npt.NDArray[np.uint16]:
    """Return ids of calls.txt; the column is a dictionary, so each name is looked up once."""
    names = table["syscall"].combine_chunks()
    if isinstance(names, pa.ChunkedArray):
        names = pa.concat_arrays(names.chunks)
    names = names if pa.types.is_dictionary(names.type) else names.dictionary_encode()
    ids = [CALLS[n].id if n in CALLS else UNKNOWN for n in names.dictionary.to_pylist()]
    indices: npt.NDArray[np.int64] = names.indices.to_numpy()
    return np.array(ids, np.uint16)[indices]
