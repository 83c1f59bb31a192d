"""The tables beside the calls: segments, stacks, block requests."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spoolscope.tracers.call_index import CallIndex
from spoolscope.tracers.components import NONE, STRINGS, Paths, looked_up
from spoolscope.tracers.inodes import Inodes
from spoolscope.traces import constants
from spoolscope.traces.capture import Capture, Records
from spoolscope.traces.columns import symbols
from spoolscope.traces.comms import Comms
from spoolscope.traces.programs import group

BLOCKED, PREEMPTED = constants.SWITCH_BLOCKED, constants.SWITCH_PREEMPTED
WAKERS = ("none", "task", "irq", "idle")
# include/linux/blk_types.h: enum req_op; flags above the low 8 bits.
OPS = {0: "read", 1: "write", 2: "flush", 3: "discard", 9: "zeroes"}
# block/blk-core.c: errno of each blk_status_t. block_rq_complete has a blk_status_t since v5.16,
# an errno before. Values above these changed between versions and become -EIO.
STATUS_ERRNO = -np.array([0, 95, 110, 28, 67, 121, 52, 61, 84, 12, 5, 78, 11, 16, 5], np.int32)
LOOP_MAJOR = 7  # Documentation/admin-guide/devices.txt
REQ_SYNC, REQ_META, REQ_FUA, REQ_PREFLUSH = 1 << 11, 1 << 12, 1 << 17, 1 << 18
HELD_BACK = constants.BLOCK_HELD_BACK

PART = 1 << 14
Columns = dict[str, Any]
Int = npt.NDArray[np.int64]


STATES = ("blocked", "runq", "preempted")


def segment_parts(
    capture: Capture, index: CallIndex, comms: Comms, inodes: Inodes, paths: Paths
) -> Iterator[Columns]:
    """Yield the columns of segments in parts: an absence becomes blocked + runq, or preempted.

    Absences in calls that turned out not to be on a spool have no recorded call and are dropped.
    """
    switches = capture.records["switch"]
    call = index.row(switches["tid"], switches["call_ns"])
    kept = (call >= 0) | (switches["call_ns"] == 0)
    if not kept.all():
        switches, call = switches[kept], call[kept]
    in_walk = switches["dir_ino"] > 0
    dir_id = np.full(len(switches), -1, np.int64)
    walks = switches[in_walk]
    dir_id[in_walk] = inodes.path(walks["dir_dev"], walks["dir_ino"], walks["out_ns"])
    name_id, name_of = looked_up(capture, switches, call, dir_id, paths)
    waker_seq = index.seq(switches["waker_tid"], switches["waker_call_ns"])
    blocked = switches["state"] == BLOCKED
    waiting = blocked & (switches["in_ns"] > switches["wake_ns"])
    row = np.concatenate([np.flatnonzero(which) for which in (blocked, waiting, ~blocked)])
    state = np.repeat(np.arange(3), [blocked.sum(), waiting.sum(), (~blocked).sum()])
    begin = np.where(state == 1, switches["wake_ns"][row], switches["out_ns"][row])
    order = np.argsort(begin, kind="stable")
    shift = np.int64(capture.start_real_ns - capture.start_mono_ns)
    for first in range(0, max(len(order), 1), PART):
        part = order[first : first + PART]
        at = row[part]
        yield {
            **_absences(switches[at], state[part], shift, comms),
            **_looked_up(state[part] == 0, dir_id[at], name_id[at], name_of[at]),
            **_wakers(switches[at], state[part] == 0, waker_seq[at], comms),
            "seq": np.ma.masked_less(index.seq_of(call[at]), 0),
        }


def _absences(rows: Records, state: Int, shift: np.int64, comms: Comms) -> Columns:
    """Return the columns of absences in a state: times, stack, and the task that had the CPU."""
    start = np.where(state == 1, rows["wake_ns"], rows["out_ns"]).astype(np.int64)
    end = np.where(state == 0, rows["wake_ns"], rows["in_ns"]).astype(np.int64)
    held_ns = rows["held_ns"].astype(np.int64) * (state != 0)
    unknown = held_ns == 0
    return {
        "ts_ns": start + shift,
        "dur_ns": end - start,
        "pid": rows["pid"].astype(np.int32),
        "tid": rows["tid"].astype(np.int32),
        "state": symbols(state, STATES),
        "stack_id": np.ma.masked_equal(rows["stack"].astype(np.int64) * (state == 0), 0),
        "held_pid": np.ma.array(rows["held_pid"].astype(np.int32), mask=unknown),
        "held_tid": np.ma.array(rows["held_tid"].astype(np.int32), mask=unknown),
        "held_comm": comms.column(rows["held_comm"], unknown),
        "held_after_ns": np.ma.array(rows["held_from_ns"].astype(np.int64) - start, mask=unknown),
        "held_ns": np.ma.masked_equal(held_ns, 0),
    }


def _wakers(rows: Records, is_blocked: npt.NDArray[np.bool_], seq: Int, comms: Comms) -> Columns:
    """Return the columns of the task that ended each wait, null where it is not known."""
    unknown = ~is_blocked | (rows["waker"] == 0)
    return {
        "waker_pid": np.ma.array(rows["waker_pid"].astype(np.int32), mask=unknown),
        "waker_tid": np.ma.array(rows["waker_tid"].astype(np.int32), mask=unknown),
        "waker_comm": comms.column(rows["waker_comm"], unknown),
        "waker": symbols(rows["waker"], WAKERS, unknown),
        "waker_seq": np.ma.array(seq, mask=unknown | (seq < 0)),
    }


def _looked_up(
    is_blocked: npt.NDArray[np.bool_], dir_id: Int, name_id: Int, name_of: npt.NDArray[np.integer]
) -> Columns:
    """Return the columns of the name that was being looked up; only waits have one."""
    return {
        "dir_id": np.ma.array(dir_id, mask=~is_blocked | (dir_id < 0)),
        "name_id": np.ma.array(name_id, mask=~is_blocked | (name_id < 0)),
        "name_of": symbols(name_of, STRINGS, ~is_blocked | (name_of == NONE)),
    }


def sample_columns(capture: Capture, index: CallIndex) -> Columns:
    """Return one row per sample in which a call on a spool was running."""
    samples = capture.records["sample"]
    seq = index.seq(samples["tid"], samples["call_ns"])
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


def block_columns(capture: Capture, index: CallIndex, comms: Comms) -> Columns:
    """Return one row per completed block request."""
    block = capture.records["block"]
    seq = index.seq(block["tid"], block["call_ns"])
    flags = block["cmd_flags"].astype(np.int64)
    ops = [OPS.get(i, "other") for i in range(256)]
    start = block["start_ns"].astype(np.int64)
    error = block["error"].astype(np.int32)
    return {
        "ts_ns": start + (capture.start_real_ns - capture.start_mono_ns),
        "queue_ns": block["issue_ns"].astype(np.int64) - start,
        "device_ns": (block["done_ns"] - block["issue_ns"]).astype(np.int64),
        "dev": block["dev"].astype(np.int64),
        "sector": block["sector"].astype(np.int64),
        "bytes": block["bytes"].astype(np.int64),
        "op": symbols(flags & 0xFF, ops),
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
        "comm": comms.column(block["comm"]),
        "seq": np.ma.masked_less(seq, 0),
    }


def _limited_groups(capture: Capture, comms: Comms) -> pa.DictionaryArray:
    """Return the control group of every request that a limit held back."""
    names = {int(number): name for number, name in capture.meta.get("io_cgroups", {}).items()}
    numbers, which = np.unique(capture.records["block"]["cgroup_id"], return_inverse=True)
    known = np.isin(numbers, np.array(list(names), np.uint64))
    texts = [
        group(names[number].encode(errors="surrogateescape"), comms) if number in names else ""
        for number in numbers.tolist()
    ]
    return symbols(which, texts, ~known[which])
