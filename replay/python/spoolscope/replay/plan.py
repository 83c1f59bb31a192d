"""Trace -> plan: the flat file that spoolscope-replay maps and executes."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spoolscope.replay.attached import Attached, identity, pseudo
from spoolscope.replay.held import FAULT, faults, held
from spoolscope.replay.strings import Strings
from spoolscope.replay.threads import (
    Int,
    Lives,
    begin_ns,
    column,
    execs,
    exits,
    read_lives,
)
from spoolscope.replay.whatif import WHOLE, WhatIf, by_name
from spoolscope.traces.calls import CALLS
from spoolscope.traces.errors import SpoolscopeError
from spoolscope.traces.flat import DTYPES, NONE
from spoolscope.traces.trace import Trace

FORK, EXEC, EXIT = 1000, 1001, 1002
IN_FLIGHT = 1 << 3
FORKING = ("fork", "vfork", "clone", "clone3")
EXECUTING = ("execve", "execveat")
EXITING = ("exit", "exit_group")
VERSION = 3
DIRECTORY = 0o040755
# Read of the calls: half of the table, which is most of the memory that planning takes.
_COLUMNS = (
    "ts_ns", "dur_ns", "tid", "syscall", "flags_seen", "fd", "fd2", "dirfd", "dirfd2", "path_id",
    "path2_id", "path_base", "path2_base", "flags", "mode", "cmd", "arg", "offset", "size", "ret",
    "errno", "ino", "dev", "obj_mode", "obj_size", "lock_type",
)  # fmt: skip
_PLAIN = ("fd", "fd2", "dirfd", "dirfd2", "flags", "mode", "cmd")

Ops = npt.NDArray[np.void]


@dataclass(frozen=True)
class PlanSummary:
    """What a plan holds.

    Attributes:
        path: The plan file.
        syscalls: Calls in the trace.
        ops: Operations in the plan, process life included.
        in_flight: Calls that never returned, left out.
        strangers: Calls of threads the trace does not know, left out.
        threads: Recorded threads.
        faults: Page faults on mapped files.
        held_skipped: Locks and mappings at start that cannot be had again.
        left_out: Calls left out on purpose, by name.
        duration_ns: Length of the recording.
        tree_bytes: Bytes of all files in the snapshot.
        written_bytes: Bytes that calls wrote.
    """

    path: Path
    syscalls: int
    ops: int
    in_flight: int
    strangers: int
    threads: int
    faults: int
    held_skipped: int
    left_out: dict[str, int]
    duration_ns: int
    tree_bytes: int
    written_bytes: int

    def as_dict(self) -> dict[str, Any]:
        """Return the summary as JSON knows it."""
        return {**asdict(self), "path": str(self.path)}


def build(trace: Trace, out: Path, what_if: WhatIf = WHOLE) -> PlanSummary:
    """Write the plan of a trace.

    Args:
        trace: An opened trace.
        out: The plan file to write.
        what_if: Which calls are left out on purpose.

    Raises:
        SpoolscopeError: the trace holds no call.
    """
    calls = trace.table("syscalls", list(_COLUMNS))
    if calls.num_rows == 0:
        raise SpoolscopeError(
            f"trace {trace.path} holds no call on a spool",
            remedy="record again while the mail server works",
        )
    lives, strings = read_lives(trace), Strings(trace)
    ops = _call_ops(trace, calls, lives, strings)
    in_flight = column(calls, "flags_seen", 0) & IN_FLIGHT > 0
    in_flight &= ~np.isin(ops["op"], _ids(EXITING))  # they never return
    before = ops["end_ns"] <= 0  # the snapshot shows what they did
    strangers = (ops["thread"] == NONE) & ~in_flight & ~before
    kept = ~in_flight & ~strangers & ~before
    ops = _with_life(trace, ops, kept, faults(trace, lives), lives)
    left_out = what_if.left_out(ops)
    gone, ops = by_name(ops[left_out]), ops[~left_out] if left_out.any() else ops
    threads = _threads(lives, strings)
    attached = Attached(trace, lives, strings)
    before_all = held(trace, lives, strings, attached)
    ops = _joined(before_all.ops, attached.ops, ops)
    entries = np.concatenate([_entries(trace, strings), attached.entries])
    sections = {
        "threads_at": threads,
        "ops_at": ops,
        "entries_at": entries,
        "fds_at": attached.fds,
        "xattrs_at": _xattrs(trace, strings),
    }
    _write(out, trace, sections, strings)
    writes = np.isin(ops["op"], [CALLS[n].id for n in CALLS if "write" in n])
    return PlanSummary(
        path=out,
        syscalls=calls.num_rows,
        ops=len(ops),
        in_flight=int(in_flight.sum()),
        strangers=int(strangers.sum()),
        threads=len(threads),
        faults=int((ops["op"] == FAULT).sum()),
        held_skipped=before_all.skipped,
        left_out=gone,
        duration_ns=int(trace.meta["duration_ns"]),
        tree_bytes=int(entries["size"].sum()),
        written_bytes=int(np.maximum(ops["ret"][writes], 0).sum()),
    )


def _call_ops(trace: Trace, calls: pa.Table, lives: Lives, strings: Strings) -> Ops:
    ops = np.zeros(calls.num_rows, DTYPES["plan_op"])
    since = column(calls, "ts_ns") - begin_ns(trace)
    start = np.maximum(since, 0)
    ops["start_ns"], ops["end_ns"] = start, since + column(calls, "dur_ns")
    errno = column(calls, "errno", 0)
    ops["ret"] = np.where(errno != 0, -errno, column(calls, "ret"))
    ops["call"] = np.arange(calls.num_rows)
    ops["op"] = _call_ids(calls)
    thread = lives.find(column(calls, "tid"), start)
    ops["thread"] = np.where(thread >= 0, thread, NONE)
    ops["path"] = strings.of(column(calls, "path_id"))
    ops["path2"] = strings.of(column(calls, "path2_id"))
    for name in _PLAIN:
        missing = 0 if name in ("flags", "mode", "cmd") else -1
        ops[name] = column(calls, name, missing).astype(ops.dtype[name])
    for name in ("offset", "size", "obj_size"):
        ops[name] = column(calls, name)
    ops["arg"] = column(calls, "arg", 0)
    ops["obj_mode"] = column(calls, "obj_mode", 0)
    ops["ino"] = identity(trace, calls)
    ops["base"], ops["base2"] = column(calls, "path_base", 0), column(calls, "path2_base", 0)
    lock = column(calls, "lock_type", 0)
    ops["lock_type"], ops["lock_whence"] = lock & 0xFF, lock >> 8
    return ops


def _call_ids(calls: pa.Table) -> npt.NDArray[np.uint16]:
    """Ids of calls.txt; the column is a dictionary, so each name is looked up once."""
    names = calls["syscall"].combine_chunks()
    if isinstance(names, pa.ChunkedArray):
        names = pa.concat_arrays(names.chunks)
    names = names if pa.types.is_dictionary(names.type) else names.dictionary_encode()
    table = np.array([_call_id(n) for n in names.dictionary.to_pylist()], np.uint16)
    indices: npt.NDArray[np.int64] = names.indices.to_numpy()
    return table[indices]


def _call_id(name: str) -> int:
    call = CALLS.get(name)
    return call.id if call else FORK - 1  # no call has this id: skipped as unsupported


def _joined(*parts: Ops) -> Ops:
    """Concatenate; operations are not copied if only one part has any."""
    filled = [part for part in parts if len(part)] or [parts[-1]]
    return filled[0] if len(filled) == 1 else np.concatenate(filled)


def _with_life(
    trace: Trace, ops: Ops, kept: npt.NDArray[np.bool_], others: Ops, lives: Lives
) -> Ops:
    """Turn process calls and task events into FORK, EXEC and EXIT operations, in order.

    Args:
        trace: The trace.
        ops: Its calls.
        kept: Which of them are replayed; changed.
        others: Operations that are no calls.
        lives: Threads of the trace.
    """
    forked = np.flatnonzero(lives.parent != NONE)
    forks = pseudo(FORK, lives.parent[forked], lives.start_ns[forked])
    forks["arg"] = forked
    execs_ = pseudo(EXEC, *_known(lives, *execs(trace)))
    exits_ = pseudo(EXIT, *_known(lives, *exits(trace)))
    for events, names in ((forks, FORKING), (execs_, EXECUTING), (exits_, EXITING)):
        _merge(ops, kept, events, names)
    childless = np.isin(ops["op"], _ids(FORKING)) & (ops["ret"] >= 0) & kept
    ops["op"][childless], ops["arg"][childless] = FORK, NONE
    n_calls = len(ops)
    ops = _joined(ops, others, forks, execs_, exits_)
    op = ops["op"].copy()
    # Exits come last and forks first among operations of one moment.
    rank = np.where(op == FORK, 0, np.where(op == EXIT, 2, 1)).astype(np.int8)
    order = np.lexsort((rank, ops["start_ns"]))
    order = order[(order >= n_calls) | kept[np.minimum(order, n_calls - 1)]]
    return ops[_within_life(order, op, ops["thread"].copy(), len(lives.tid))]


def _known(lives: Lives, tid: Int, ts_ns: Int) -> tuple[Int, Int]:
    thread = lives.find(tid, ts_ns)
    return thread[thread >= 0], ts_ns[thread >= 0]


def _ids(names: tuple[str, ...]) -> list[int]:
    return [CALLS[name].id for name in names]


def _merge(ops: Ops, kept: npt.NDArray[np.bool_], events: Ops, names: tuple[str, ...]) -> None:
    """Give each event the time and row of the call that caused it; do not keep those calls."""
    causes = np.flatnonzero(np.isin(ops["op"], _ids(names)) & (ops["ret"] >= 0) & kept)
    causes = causes[np.lexsort((ops["start_ns"][causes], ops["thread"][causes]))]
    thread, start = ops["thread"][causes].astype(np.int64), ops["start_ns"][causes]
    big = int(max(start.max(initial=0), events["start_ns"].max(initial=0))) + 1
    key = thread * big + start
    wanted = events["thread"].astype(np.int64) * big + events["start_ns"]
    at = np.searchsorted(key, wanted, "right") - 1
    hit = at >= 0
    hit[hit] = thread[at[hit]] == events["thread"][hit]
    ended = names == EXITING
    if not ended:
        hit[hit] = events["start_ns"][hit] <= ops["end_ns"][causes[at[hit]]]
    cause = causes[at[hit]]
    events["call"][hit] = ops["call"][cause]
    events["end_ns"][hit] = np.maximum(ops["end_ns"][cause], events["end_ns"][hit])
    events["start_ns"][hit] = ops["start_ns"][cause]
    kept[cause] = False


def _within_life(order: Int, op: Int, thread: Int, n_threads: int) -> Int:
    """Drop what a thread seems to do after its exit: clocks of two sources can disagree.

    Args:
        order: Operations in order of time.
        op: What each is.
        thread: Whose it is.
        n_threads: Number of threads.
    """
    last = np.full(n_threads, np.iinfo(np.int64).max, np.int64)
    whose = thread[order]
    exits_ = np.flatnonzero(op[order] == EXIT)
    last[whose[exits_]] = exits_
    within: Int = order[np.arange(len(order)) <= last[whose]]
    return within


def _threads(lives: Lives, strings: Strings) -> npt.NDArray[np.void]:
    threads = np.zeros(len(lives.tid), DTYPES["plan_thread"])
    for name in ("start_ns", "tid", "pid", "parent", "uid", "gid", "umask", "flags", "comm"):
        threads[name] = getattr(lives, name)
    threads["cwd"] = strings.of(lives.cwd_id)
    return threads


def _entries(trace: Trace, strings: Strings) -> npt.NDArray[np.void]:
    tree = trace.table("tree")
    entries = np.zeros(tree.num_rows, DTYPES["plan_entry"])
    entries["path"] = strings.of(column(tree, "path_id"))
    entries["target"] = strings.of(column(tree, "target_id"))
    entries["ino"] = identity(trace, tree)
    for name in ("mode", "uid", "gid", "size", "mtime_ns"):
        entries[name] = column(tree, name, 0)
    entries = np.concatenate([entries, _missed(trace, strings)])
    return _with_parents(entries[entries["path"] != NONE], strings)


def _missed(trace: Trace, strings: Strings) -> Ops:
    """Names that must have been there; of files the calls tell more (mode 0: unknown)."""
    names = trace.table("missed_names")
    entries = np.zeros(names.num_rows, DTYPES["plan_entry"])
    entries["path"], entries["target"] = strings.of(column(names, "path_id")), NONE
    entries["ino"] = identity(trace, names)
    entries["mode"] = np.where(names["directory"].to_numpy(), DIRECTORY, 0)
    return entries


def _xattrs(trace: Trace, strings: Strings) -> Ops:
    table = trace.table("xattrs")
    xattrs = np.zeros(table.num_rows, DTYPES["plan_xattr"])
    xattrs["path"] = strings.of(column(table, "path_id"))
    xattrs["name"] = strings.of(column(table, "name_id"))
    xattrs["length"] = column(table, "length")
    kept: Ops = xattrs[(xattrs["path"] != NONE) & (xattrs["name"] != NONE)]
    return kept


def _with_parents(entries: Ops, strings: Strings) -> Ops:
    """Add directories that must have been there although the snapshot did not meet them."""
    present = set(entries["path"].tolist())
    missing: dict[int, int] = {}
    for at, path in enumerate(entries["path"].tolist()):
        above = strings.text(path).rpartition(b"/")[0]
        while above and (index := strings.index(above)) not in present:
            present.add(index)
            missing[index] = at
            above = above.rpartition(b"/")[0]
    added = entries[list(missing.values())].copy()
    added["path"], added["mode"] = list(missing), DIRECTORY
    added["ino"], added["size"], added["target"] = 0, 0, NONE
    both: Ops = np.concatenate([added, entries])
    return both


def _write(out: Path, trace: Trace, sections: dict[str, Ops], strings: Strings) -> None:
    index, text = strings.packed()
    arrays: dict[str, npt.NDArray[Any]] = {
        **sections,
        "string_index_at": index,
        "string_bytes_at": text,
    }
    header = np.zeros(1, DTYPES["plan_header"])
    at = header.dtype.itemsize
    for name, values in arrays.items():
        header[name] = at
        at += -(-values.nbytes // 8) * 8
    header["magic"], header["version"] = b"SPOOLPLN", VERSION
    for name in ("threads", "ops", "entries", "fds", "xattrs"):
        header[f"n_{name}"] = len(sections[f"{name}_at"])
    header["n_strings"], header["string_bytes"] = len(index) - 1, len(text)
    late = begin_ns(trace) - int(trace.meta["start_ns"])
    header["duration_ns"] = int(trace.meta["duration_ns"]) - late
    with out.open("wb") as file:
        file.write(header.tobytes())
        for values in arrays.values():
            file.write(np.ascontiguousarray(values).data)
            file.write(bytes(-values.nbytes % 8))
