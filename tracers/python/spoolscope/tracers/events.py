"""The tables beside the calls: segments, stacks, block requests."""

from typing import Any

import numpy as np
import numpy.typing as npt

from spoolscope.tracers.components import Paths, looked_up
from spoolscope.tracers.inodes import Inodes
from spoolscope.traces.capture import Capture, Records
from spoolscope.traces.comms import Comms
from spoolscope.traces.programs import group

BLOCKED, PREEMPTED = 1, 2
WAKERS = np.array(["none", "task", "irq", "idle"], dtype=object)
# include/linux/blk_types.h: enum req_op; flags above the low 8 bits.
OPS = {0: "read", 1: "write", 2: "flush", 3: "discard", 9: "zeroes"}
# block/blk-core.c: errno of each blk_status_t. block_rq_complete has a blk_status_t since v5.16,
# an errno before. Values above these changed between versions and become -EIO.
STATUS_ERRNO = -np.array([0, 95, 110, 28, 67, 121, 52, 61, 84, 12, 5, 78, 11, 16, 5], np.int32)
LOOP_MAJOR = 7  # Documentation/admin-guide/devices.txt
REQ_SYNC, REQ_META, REQ_FUA, REQ_PREFLUSH = 1 << 11, 1 << 12, 1 << 17, 1 << 18
HELD_BACK = 1 << 0  # enum spsc_block_flags

Columns = dict[str, Any]
Int = npt.NDArray[np.int64]


class CallIndex:
    """Finds the seq of a call by its thread and its start."""

    def __init__(self, calls: Records) -> None:
        self._starts = np.unique(calls["start_ns"])
        key = self._key(calls["tid"], calls["start_ns"])
        self._order = np.argsort(key)
        self._keys = key[self._order]
        self._seq = calls["seq"].astype(np.int64)

    def _key(
        self, tid: npt.NDArray[np.uint32], start: npt.NDArray[np.uint64]
    ) -> npt.NDArray[np.uint64]:
        # The rank of the start time keeps (tid, start) within 64 bits without collisions.
        rank = np.searchsorted(self._starts, start).astype(np.uint64)
        exact = np.zeros(len(start), np.bool_)
        inside = rank < len(self._starts)
        exact[inside] = self._starts[rank[inside]] == start[inside]
        key: npt.NDArray[np.uint64] = tid.astype(np.uint64) << np.uint64(32) | rank
        key[~exact] = np.iinfo(np.uint64).max
        return key

    def row(self, tid: npt.NDArray[np.uint32], start: npt.NDArray[np.uint64]) -> Int:
        """Return the number of each call's record, -1 where there is none."""
        found = np.full(len(tid), -1, np.int64)
        if not len(self._keys):
            return found
        key = self._key(tid, start)
        at = np.searchsorted(self._keys, key)
        at[at == len(self._keys)] = 0
        hit = self._keys[at] == key
        found[hit] = self._order[at[hit]]
        return found

    def seq(self, tid: npt.NDArray[np.uint32], start: npt.NDArray[np.uint64]) -> Int:
        """Return the seq of each call, -1 where there is no such record."""
        return self.seq_of(self.row(tid, start))

    def seq_of(self, row: Int) -> Int:
        """Return the seq of each record, -1 for -1."""
        return np.where(row >= 0, self._seq[row], -1) if len(self._seq) else row


def segment_columns(capture: Capture, comms: Comms, inodes: Inodes, paths: Paths) -> Columns:
    """Return the columns of segments: an absence becomes blocked + runq, or preempted.

    Absences in calls that turned out not to be on a spool have no recorded call and are dropped.
    """
    index = CallIndex(capture.records["syscall"])
    switches = capture.records["switch"]
    call = index.row(switches["tid"], switches["call_ns"])
    kept = (call >= 0) | (switches["call_ns"] == 0)
    switches, call = switches[kept], call[kept]
    seq = index.seq_of(call)
    in_walk = switches["dir_ino"] > 0
    dir_id = np.full(len(switches), -1, np.int64)
    walks = switches[in_walk]
    dir_id[in_walk] = inodes.path(walks["dir_dev"], walks["dir_ino"], walks["out_ns"])
    name_id, name_of = looked_up(capture, switches, call, dir_id, paths)
    waker_seq = index.seq(switches["waker_tid"], switches["waker_call_ns"])
    blocked = switches["state"] == BLOCKED
    waiting = blocked & (switches["in_ns"] > switches["wake_ns"])
    parts = (
        ("blocked", blocked, "out_ns", "wake_ns"),
        ("runq", waiting, "wake_ns", "in_ns"),
        ("preempted", ~blocked, "out_ns", "in_ns"),
    )
    shift = np.int64(capture.start_real_ns - capture.start_mono_ns)
    pieces = []
    for state, where, begin, end in parts:
        rows = switches[where]
        start = rows[begin].astype(np.int64)
        is_blocked = state == "blocked"
        pieces.append(
            {
                "ts_ns": start + shift,
                "dur_ns": rows[end].astype(np.int64) - start,
                "pid": rows["pid"].astype(np.int32),
                "tid": rows["tid"].astype(np.int32),
                "seq": seq[where],
                "state": np.full(len(rows), state, object),
                "stack_id": rows["stack"].astype(np.int64) * is_blocked,
                "waker_pid": np.where(is_blocked, rows["waker_pid"], 0).astype(np.int32),
                "waker_tid": np.where(is_blocked, rows["waker_tid"], 0).astype(np.int32),
                "waker_comm": comms.texts(rows["waker_comm"]),
                "waker": WAKERS[rows["waker"]],
                "waker_seq": waker_seq[where],
                "dir_id": np.where(is_blocked, dir_id[where], -1),
                "name_id": np.where(is_blocked, name_id[where], -1),
                "name_of": np.where(is_blocked, name_of[where], "none"),
                **_holders(rows, start, comms, of_cpu=not is_blocked),
            }
        )
    columns: Columns = {k: np.concatenate([p[k] for p in pieces]) for k in pieces[0]}
    known = (columns["state"] == "blocked") & (columns["waker"] != "none")
    for name in ("waker_pid", "waker_tid", "waker_comm", "waker"):
        columns[name] = np.ma.array(columns[name], mask=~known)
    columns["waker_seq"] = np.ma.array(
        columns["waker_seq"], mask=~known | (columns["waker_seq"] < 0)
    )
    for name in ("held_pid", "held_tid", "held_comm", "held_after_ns"):
        columns[name] = np.ma.array(columns[name], mask=columns["held_ns"] == 0)
    columns["held_ns"] = np.ma.masked_equal(columns["held_ns"], 0)
    columns["seq"] = np.ma.masked_less(columns["seq"], 0)
    for name in ("dir_id", "name_id"):
        columns[name] = np.ma.masked_less(columns[name], 0)
    columns["name_of"] = np.ma.array(columns["name_of"], mask=columns["name_of"] == "none")
    columns["stack_id"] = np.ma.masked_equal(columns["stack_id"], 0)
    return columns


def _holders(rows: Records, start: Int, comms: Comms, *, of_cpu: bool) -> Columns:
    """Return the task that had the awaited CPU, and when; held_ns is 0 if no task is known."""
    return {
        "held_pid": rows["held_pid"].astype(np.int32),
        "held_tid": rows["held_tid"].astype(np.int32),
        "held_comm": comms.texts(rows["held_comm"]),
        "held_after_ns": rows["held_from_ns"].astype(np.int64) - start,
        "held_ns": rows["held_ns"].astype(np.int64) * of_cpu,
    }


def sample_columns(capture: Capture) -> Columns:
    """Return one row per sample in which a call on a spool was running."""
    samples = capture.records["sample"]
    calls = capture.records["syscall"]
    seq = CallIndex(calls).seq(samples["tid"], samples["call_ns"])
    samples, seq = samples[seq >= 0], seq[seq >= 0]
    return {
        "ts_ns": samples["ts_ns"].astype(np.int64)
        + (capture.start_real_ns - capture.start_mono_ns),
        "pid": samples["pid"].astype(np.int32),
        "tid": samples["tid"].astype(np.int32),
        "seq": seq,
        "cpu": samples["cpu"].astype(np.int16),
        "stack_id": np.ma.masked_equal(samples["stack"].astype(np.int64), 0),
    }


def stack_columns(capture: Capture) -> Columns:
    """Return one row per frame; row 0 of the stacks is the empty stack and left out."""
    ids, depths = np.nonzero(capture.stacks)
    addresses = capture.stacks[ids, depths]
    names = [capture.symbols.get(a, f"0x{a:x}") for a in addresses.tolist()]
    return {
        "stack_id": ids.astype(np.int64),
        "depth": depths.astype(np.int16),
        "address": addresses.view(np.int64),
        "symbol": np.array(names, object),
    }


def block_columns(capture: Capture, comms: Comms) -> Columns:
    """Return one row per completed block request."""
    block = capture.records["block"]
    seq = CallIndex(capture.records["syscall"]).seq(block["tid"], block["call_ns"])
    flags = block["cmd_flags"].astype(np.int64)
    ops = np.array([OPS.get(i, "other") for i in range(256)], object)
    start = block["start_ns"].astype(np.int64)
    error = block["error"].astype(np.int32)
    return {
        "ts_ns": start + (capture.start_real_ns - capture.start_mono_ns),
        "queue_ns": block["issue_ns"].astype(np.int64) - start,
        "device_ns": (block["done_ns"] - block["issue_ns"]).astype(np.int64),
        "dev": block["dev"].astype(np.int64),
        "sector": block["sector"].astype(np.int64),
        "bytes": block["bytes"].astype(np.int64),
        "op": ops[flags & 0xFF],
        "sync": flags & REQ_SYNC > 0,
        "meta": flags & REQ_META > 0,
        "fua": flags & REQ_FUA > 0,
        "preflush": flags & REQ_PREFLUSH > 0,
        "error": np.where(error > 0, STATUS_ERRNO[error.clip(0, len(STATUS_ERRNO) - 1)], error),
        "parent_dev": np.ma.masked_equal(block["parent_dev"].astype(np.int64), 0),
        "parent_sector": np.ma.array(
            block["parent_sector"].astype(np.int64),
            mask=(block["parent_dev"] == 0) | (block["parent_dev"] >> 20 == LOOP_MAJOR),
        ),
        "held_back": block["flags"] & HELD_BACK > 0,
        "cgroup": _limited_groups(capture, comms),
        "pid": block["pid"].astype(np.int32),
        "tid": block["tid"].astype(np.int32),
        "comm": comms.texts(block["comm"]),
        "seq": np.ma.masked_less(seq, 0),
    }


def _limited_groups(capture: Capture, comms: Comms) -> npt.NDArray[np.object_]:
    """Return the control group of every request that a limit held back."""
    names = {int(number): name for number, name in capture.meta.get("io_cgroups", {}).items()}
    known = {
        number: group(names[number].encode(errors="surrogateescape"), comms)
        for number in np.unique(capture.records["block"]["cgroup_id"]).tolist()
        if number in names
    }
    return np.array([known.get(n) for n in capture.records["block"]["cgroup_id"].tolist()], object)
