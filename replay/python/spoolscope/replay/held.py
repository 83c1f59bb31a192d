"""File locks and mappings that were held when the recording attached.

Each becomes operations of the process that held it, of no recorded call and before all others.
"""

import fcntl
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from spoolscope.replay.attached import Attached
from spoolscope.replay.columns import column, have_subvolumes, identity, numbers
from spoolscope.replay.ops import BASE_ROOT, FAULT, Ops, pseudo
from spoolscope.replay.strings import Strings
from spoolscope.replay.threads import Lives, begin_ns
from spoolscope.traces.abi import F_OFD_SETLK, F_OFD_SETLKW, O_ACCMODE, O_RDWR, O_WRONLY, S_IFREG
from spoolscope.traces.calls import CALLS, of_kind
from spoolscope.traces.flat import DTYPES, NONE
from spoolscope.traces.trace import Trace

WITHOUT_WAITING = {fcntl.F_SETLKW: fcntl.F_SETLK, F_OFD_SETLKW: F_OFD_SETLK}
LOCK_COMMANDS = {*WITHOUT_WAITING, *WITHOUT_WAITING.values()}
LOCKING = of_kind("fcntl", "flock", "close")
FLOCKS = {True: fcntl.LOCK_EX, False: fcntl.LOCK_SH}
LOCK_TYPES = {True: fcntl.F_WRLCK, False: fcntl.F_RDLCK}
PROT_WRITE = 2
MAP_SHARED, MAP_PRIVATE = 1, 2
_NEEDED = (
    "ts_ns", "dur_ns", "pid", "syscall", "errno", "fd", "cmd", "lock_type", "offset", "size",
    "ino", "dev",
)  # fmt: skip
# Calls read at once: only those before the snapshot's moment are needed, of some milliseconds.
AT_ONCE = 1 << 12


@dataclass(frozen=True)
class Held:
    """Operations that take again what was held, and the number of those that cannot be had.

    Attributes:
        ops: In order; mappings first, as closing a file gives up locks on it.
        skipped: Number of locks and mappings that are not made again: the trace does not know
            their process or file.
    """

    ops: Ops
    skipped: int


def held(trace: Trace, lives: Lives, strings: Strings, attached: Attached) -> Held:
    """Return operations that take again the locks and mappings of the start."""
    spare = int(attached.fds["fd"].max(initial=2)) + 1
    mappings, unmapped = _mappings(trace, lives, strings, attached, spare)
    locks, unlocked = _locks(trace, lives, attached)
    ops = np.concatenate([mappings, locks])
    if have_subvolumes(trace):
        ops["ino"] = 0
    return Held(ops, unmapped + unlocked)


def _mappings(
    trace: Trace, lives: Lives, strings: Strings, attached: Attached, spare: int
) -> tuple[Ops, int]:
    """Return open, mmap and close for each mapping; the descriptor is the first unused one."""
    table = trace.table("mappings")
    pid, ino = column(table, "pid"), numbers(trace, table)
    thread = lives.find(pid, np.zeros(len(pid), np.int64))
    path = strings.of(column(table, "path_id"))
    for number, entry in zip(attached.nameless, attached.entries["path"], strict=True):
        path[ino == number] = entry  # the file has lost its name
    known = (thread >= 0) & (path != NONE)
    ops = np.repeat(pseudo(0, np.maximum(thread, 0), thread * 0), 3)
    opens, maps, closes = ops[0::3], ops[1::3], ops[2::3]
    ops["ino"], ops["path"] = np.repeat(ino, 3), np.repeat(path, 3)
    ops["obj_mode"] = S_IFREG
    shared = table["shared"].to_numpy(zero_copy_only=False).astype(np.bool_)
    prot = column(table, "prot")
    opens["op"], opens["base"], opens["ret"] = CALLS["openat"].id, BASE_ROOT, spare
    opens["flags"] = np.where(shared & (prot & PROT_WRITE > 0), O_RDWR, 0)
    maps["op"], maps["fd"], maps["mode"] = CALLS["mmap"].id, spare, prot
    maps["flags"] = np.where(shared, MAP_SHARED, MAP_PRIVATE)
    maps["arg"] = maps["ret"] = column(table, "address")
    maps["size"], maps["offset"] = column(table, "length"), column(table, "offset")
    closes["op"], closes["fd"] = CALLS["close"].id, spare
    return ops[np.repeat(known, 3)], int((~known).sum())


def _locks(trace: Trace, lives: Lives, attached: Attached) -> tuple[Ops, int]:
    """Return one call for each lock, through a descriptor that its process had for that file.

    Locks are read shortly before the moment that everything else shows: calls that changed them
    in between are repeated.
    """
    table = trace.table("held_locks")
    inos = numbers(trace, table).tolist()
    between = _between(trace, lives, table)
    closed = {(pid, ino): at for at, (pid, ino, op) in enumerate(between) if op is None}
    found = [np.zeros(0, DTYPES["plan_op"])]
    skipped = 0
    for row, ino in zip(table.to_pylist(), inos, strict=True):
        if row["waiting"] or (row["kind"] == "posix" and (row["pid"], ino) in closed):
            continue
        op = _lock(row, ino, attached)
        skipped += op is None
        found += [] if op is None else [op]
    fds = attached.fds
    has = set(zip(fds["thread"].tolist(), fds["fd"].tolist(), attached.inos.tolist(), strict=True))
    for at, (pid, ino, op) in enumerate(between):
        if op is not None and at > closed.get((pid, ino), -1):
            found += [op] if (int(op["thread"][0]), int(op["fd"][0]), ino) in has else []
    return np.concatenate(found), skipped


def _between(trace: Trace, lives: Lives, locks: pa.Table) -> list[tuple[int, int, Ops | None]]:
    """Return later calls that changed these locks: process, file and call (None: a close)."""
    if not locks.num_rows:
        return []
    begin, read = begin_ns(trace), int(column(locks, "ts_ns").min())
    parts = []
    for calls in trace.parts("syscalls", _NEEDED, AT_ONCE):
        end = column(calls, "ts_ns") + column(calls, "dur_ns")
        names = pa.compute.is_in(calls["syscall"].cast(pa.string()), pa.array(LOCKING))
        wanted = (end >= read) & (end <= begin) & (column(calls, "errno", 0) == 0)
        parts.append(calls.take(np.flatnonzero(wanted & names.to_numpy(zero_copy_only=False))))
        if column(calls, "ts_ns").max(initial=begin) > begin:
            break
    calls = pa.concat_tables(parts).unify_dictionaries()
    thread = lives.find(column(calls, "pid"), np.zeros(calls.num_rows, np.int64))
    found: list[tuple[int, int, Ops | None]] = []
    inos = numbers(trace, calls).tolist()
    for call, ino, at in zip(calls.to_pylist(), inos, thread.tolist(), strict=True):
        if at < 0 or (call["syscall"] == "fcntl" and call["cmd"] not in LOCK_COMMANDS):
            continue
        op = None if call["syscall"] == "close" else _again(call, ino, at)
        found.append((call["pid"], ino, op))
    return found


def _again(call: dict[str, Any], ino: int, thread: int) -> Ops:
    """Return an operation that repeats a call on a lock, without waiting."""
    op = pseudo(CALLS[call["syscall"]].id, np.array([thread]), np.zeros(1, np.int64))
    kind = call["lock_type"] or 0
    op["fd"], op["ino"], op["obj_mode"] = call["fd"], ino, S_IFREG
    op["cmd"] = WITHOUT_WAITING.get(call["cmd"], call["cmd"])
    op["lock_type"], op["lock_whence"] = kind & 0xFF, kind >> 8
    op["offset"], op["size"] = call["offset"] or 0, call["size"] or 0
    return op


def _lock(row: dict[str, Any], ino: int, attached: Attached) -> Ops | None:
    kind, exclusive = row["kind"], bool(row["exclusive"])
    fds = attached.fds[attached.inos == ino]
    access = fds["flags"] & O_ACCMODE
    if kind == "lease":
        fds = fds if exclusive else fds[access == 0]
    elif kind != "flock":
        fds = fds[(access != 0) if exclusive else (access != O_WRONLY)]
    own = fds[attached.pids_of(fds) == row["pid"]]
    # Only POSIX locks belong to a process; others may have been passed on with the open file.
    fds = own if len(own) or kind == "posix" else fds
    if not len(fds):
        return None
    name = "flock" if kind == "flock" else "fcntl"
    op = pseudo(CALLS[name].id, fds["thread"][:1].astype(np.int64), np.zeros(1, np.int64))
    op["fd"], op["ino"], op["path"], op["obj_mode"] = fds["fd"][0], ino, fds["path"][0], S_IFREG
    if kind == "flock":
        op["cmd"] = FLOCKS[exclusive] | fcntl.LOCK_NB
        return op
    if kind == "lease":
        op["cmd"], op["arg"] = fcntl.F_SETLEASE, LOCK_TYPES[exclusive]
        return op
    op["cmd"] = F_OFD_SETLK if kind == "ofd" else fcntl.F_SETLK
    op["lock_type"] = LOCK_TYPES[exclusive]
    op["offset"], op["size"] = row["start"], row["length"] or 0
    return op


def faults(trace: Trace, lives: Lives) -> Iterator[Ops]:
    """Yield operations that touch the same mapped pages as the recorded page faults."""
    for table in trace.parts("faults"):
        since = column(table, "ts_ns") - begin_ns(trace)
        thread = lives.find(column(table, "tid"), since)
        page = column(table, "page")
        page = np.where(page >= 0, page, column(table, "first_page"))
        known = (thread >= 0) & (page >= 0) & (since > 0)
        ops = pseudo(FAULT, thread[known], since[known])
        ops["end_ns"] += column(table, "dur_ns", 0)[known]
        ops["ino"], ops["obj_mode"] = identity(trace, table)[known], S_IFREG
        ops["offset"], ops["size"] = page[known] * 4096, 1
        ops["arg"] = table["absent"].to_numpy()[known]  # the engine ignores it
        ops["flags"] = table["write"].to_numpy().astype(np.uint32)[known]
        ops["path"] = NONE
        yield ops
