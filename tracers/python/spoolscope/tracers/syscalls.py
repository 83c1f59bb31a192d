"""The syscalls table: arguments of calls in columns by their meaning."""

import errno
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from spoolscope.tracers.path_ids import Devices
from spoolscope.tracers.resolved import Resolved
from spoolscope.traces.abi import FCNTL_LOCKS, O_CREAT, O_TRUNC, O_WRONLY
from spoolscope.traces.calls import BY_ID, CALLS, FICLONE, FICLONERANGE, of_kind
from spoolscope.traces.capture import Capture, Records
from spoolscope.traces.columns import symbols
from spoolscope.traces.comms import Comms
from spoolscope.traces.constants import CALL_ELSEWHERE, CALL_EXTRA_FAULT, CALL_RESTARTED

Int = npt.NDArray[np.int64]
PART = 1 << 14
# struct file_clone_range in the recorder's args: source file and offset, length, target offset.
_RANGE = {"fd2": 2, "arg": 3, "size": 4, "offset": 5}
O_CREAT_WRONLY_TRUNC = O_CREAT | O_WRONLY | O_TRUNC
# include/linux/errno.h: after a signal, the kernel makes these EINTR or restarts the call; programs
# never see these numbers. SPSC_CALL_RESTARTED marks them.
RESTARTS = (512, 513, 514, 516)
RESTARTED = np.int32(CALL_RESTARTED)
ELSEWHERE = np.int32(CALL_ELSEWHERE)
EXTRA_FAULT = np.int32(CALL_EXTRA_FAULT)
ACL_MODE = 0x1000
# Argument words that become a column of their own; those in `_INTS` are C ints.
_INTS = ("fd", "fd2", "dirfd", "dirfd2", "flags", "mode", "cmd")
_LONGS = ("offset", "size", "arg")
# Calls that begin at the position of their descriptor.
_AT_POSITION = tuple(
    name for name in of_kind("read", "write", "getdents") if CALLS[name].position("offset") is None
)
# Two ids in one number.
_IDS = {"uid": 0, "gid": 32}
# Offsets given by pointer.
_PLACES = {"at": "offset", "at2": "arg"}


def call_parts(
    capture: Capture,
    whole_calls: Callable[[Int], Records],
    resolved: Resolved,
    comms: Comms,
    device: Devices,
) -> Iterator[dict[str, Any]]:
    """Return the columns of the syscalls table in order of time, in parts of PART rows.

    Args:
        capture: The capture.
        whole_calls: Returns calls with all their members, given their numbers.
        resolved: Names of its calls.
        comms: How names of threads are shown.
        device: Device of the spool that each path id lies on.
    """
    calls = capture.records["syscall"]
    shift = capture.start_real_ns - capture.start_mono_ns
    order = np.argsort(calls["start_ns"], kind="stable")
    names = [comms.text(comm) for comm in resolved.comms]
    for begin in range(0, max(len(order), 1), PART):
        rows = order[begin : begin + PART]
        part = Resolved(
            resolved.paths,
            resolved.ids,
            resolved.path[rows],
            resolved.path2[rows],
            resolved.given[rows],
            resolved.given2[rows],
            resolved.base[rows],
            resolved.base2[rows],
            resolved.comm[rows],
            resolved.elsewhere[rows],
        )
        yield _columns(whole_calls(rows), part, names, shift, device)


def _columns(
    calls: Records,
    resolved: Resolved,
    comms: list[str],
    shift: int,
    device: Devices,
) -> dict[str, Any]:
    arguments = Arguments(calls)
    arguments.fill()
    failed = (calls["ret"] < 0) & (calls["ret"] >= -4095)
    error = np.where(failed, -calls["ret"], 0)
    restarted = np.isin(error, RESTARTS)
    dev = calls["dev"].astype(np.int64)
    dev = np.where((dev == 0) & (calls["ino"] > 0), device(resolved.path), dev)
    columns = {
        "ts_ns": calls["start_ns"].astype(np.int64) + shift,
        "dur_ns": (calls["end_ns"] - calls["start_ns"]).astype(np.int64),
        "seq": calls["seq"].astype(np.int64),
        "pid": calls["pid"].astype(np.int32),
        "tid": calls["tid"].astype(np.int32),
        "cpu": calls["cpu"].astype(np.int16),
        "comm": symbols(resolved.comm, comms),
        "syscall": symbols(calls["call"], [c.name for c in BY_ID.values()]),
        "path_id": np.ma.masked_less(resolved.path, 0),
        "path2_id": np.ma.masked_less(resolved.path2, 0),
        "given_id": np.ma.masked_less(resolved.given, 0),
        "given2_id": np.ma.masked_less(resolved.given2, 0),
        "path_base": resolved.base,
        "path2_base": resolved.base2,
        "ret": np.where(failed, -1, calls["ret"]),
        "errno": np.where(restarted, errno.EINTR, error).astype(np.int16),
        "dev": np.ma.masked_equal(dev, 0),
        "ino": np.ma.masked_equal(calls["ino"].astype(np.int64), 0),
        "obj_mode": np.ma.masked_equal(calls["obj_mode"].astype(np.int32), 0),
        "obj_size": np.ma.masked_where(arguments.is_lock | (calls["size"] < 0), calls["size"]),
        "flags_seen": calls["flags"].astype(np.int32)
        | restarted * RESTARTED
        | resolved.elsewhere * ELSEWHERE,
        **arguments.columns(),
    }
    for part in ("oncpu_ns", "blocked_ns", "runq_ns", "preempted_ns"):
        columns[part] = calls[part].astype(np.int64)
    columns["stolen_ns"] = np.ma.masked_less(calls["stolen_ns"].astype(np.int64), 0)
    return columns


class Arguments:
    """Argument columns, filled call by call."""

    def __init__(self, calls: Records) -> None:
        self.calls = calls
        n = len(calls)
        self.values = {w: np.zeros(n, np.int64) for w in (*_INTS, *_LONGS, "lock_type")}
        self.present = {w: np.zeros(n, np.bool_) for w in self.values}
        self.is_lock = np.zeros(n, np.bool_)

    def set(self, word: str, where: Int, values: Int) -> None:
        """Set one column in some rows, given by number."""
        self.values[word][where] = values
        self.present[word][where] = True

    def fill(self) -> None:
        """Fill the columns, one kind of call after the other."""
        order = np.argsort(self.calls["call"], kind="stable")
        numbers, first = np.unique(self.calls["call"][order], return_index=True)
        for number, where in zip(numbers.tolist(), np.split(order, first)[1:], strict=True):
            rows = self.calls[where]
            self._by_position(number, where, rows)
            self._special(BY_ID[number].name, where, rows)

    def _by_position(self, number: int, where: Int, rows: Records) -> None:
        for at, word in enumerate(BY_ID[number].args):
            if word in self.values:
                self.set(word, where, rows["args"][:, at].astype(np.int64))
            elif word in _PLACES:
                self._place(_PLACES[word], where, rows["args"][:, at].astype(np.int64))
            elif word in _IDS:
                ids = rows["args"][:, at].astype(np.int64) & 0xFFFF_FFFF
                self.set("arg", where, self.values["arg"][where] | ids << _IDS[word])
            elif word == "acl":
                value = rows["args"][:, at].astype(np.int64)
                is_mode = value & ~0o777 == ACL_MODE  # not a pointer
                self.set("mode", where[is_mode], value[is_mode] & 0o777)
            elif word == "iov":
                self.set("size", where, rows["count"].astype(np.int64))
            elif word == "how":
                self.set("flags", where, rows["args"][:, at].astype(np.int64))
                self.set("mode", where, rows["args"][:, at + 1].astype(np.int64))

    def _place(self, word: str, where: Int, offsets: Int) -> None:
        given = offsets >= 0
        self.set(word, where[given], offsets[given])

    def _special(self, name: str, where: Int, rows: Records) -> None:
        if name == "fcntl":
            lock = np.isin(rows["args"][:, 1], FCNTL_LOCKS)
            locks, lock_rows = where[lock], rows[lock]
            self.is_lock[locks] = True
            self.set("lock_type", locks, lock_rows["lock_type"].astype(np.int64))
            self.set("offset", locks, lock_rows["pos"])
            self.set("size", locks, lock_rows["size"])
            self.set("arg", where[~lock], rows["args"][~lock, 2].astype(np.int64))
        elif name == "ioctl":
            command = rows["args"][:, 1].astype(np.uint32)
            for number, words in ((FICLONE, ("fd2",)), (FICLONERANGE, tuple(_RANGE))):
                clones = (command == number) & (rows["flags"] & EXTRA_FAULT == 0)
                for word in words:
                    given = rows["args"][clones, _RANGE[word]].astype(np.int64)
                    self.set(word, where[clones], given)
        elif name == "creat":
            self.set("flags", where, np.full(len(rows), O_CREAT_WRONLY_TRUNC))
        elif name in _AT_POSITION:
            known = rows["pos"] >= 0
            self.set("offset", where[known], rows["pos"][known])

    def columns(self) -> dict[str, Any]:
        """Return the columns, masked where a call has no such argument."""
        out = {}
        for word, values in self.values.items():
            kind: Any = np.int64 if word in _LONGS else np.int32
            if word == "lock_type":
                kind = np.int16
            out[word] = np.ma.array(values.astype(kind), mask=~self.present[word])
        return out
