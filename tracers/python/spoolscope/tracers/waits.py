"""The waits table: waits for locks, file locks, writeback, room in a log; and the owners."""

from typing import Any

import numpy as np
import numpy.typing as npt

from spoolscope.tracers.call_index import CallIndex
from spoolscope.tracers.events import BLOCKED
from spoolscope.traces import constants
from spoolscope.traces.capture import Capture, Records
from spoolscope.traces.columns import symbols
from spoolscope.traces.comms import Comms

KINDS = (
    "", "mutex", "rwsem_read", "rwsem_write", "semaphore", "rt_mutex", "percpu_rwsem",
    "posix_lock", "flock", "writeback", "dirty_limit", "log_space", "iclog", "cil",
)  # fmt: skip
OBJECTS = ("other", "inode", "tree_block", "mmap", "rename")
SHARED = constants.WAIT_SHARED
# A wait without a recorded end lasts as long as the absence on a stack with one of these.
FRAMES = {
    "posix_lock": ("locks_lock_inode_wait", "fcntl_setlk", "do_lock_file_wait"),
    "flock": ("locks_lock_inode_wait", "__x64_sys_flock", "__do_sys_flock"),
    "writeback": ("folio_wait_writeback", "folio_wait_bit", "wait_on_page_writeback"),
    "dirty_limit": ("balance_dirty_pages", "balance_dirty_pages_ratelimited_flags"),
    "log_space": ("xlog_grant_head_wait",),
    "iclog": ("xlog_wait_on_iclog", "xlog_wait_on_iclog_lsn"),
    "cil": ("xlog_cil_push_background", "xlog_cil_commit"),
}  # fmt: skip

Int = npt.NDArray[np.int64]


def wait_columns(capture: Capture, index: CallIndex, comms: Comms) -> dict[str, Any]:
    """Return one row per wait; those of calls that were not on a spool are dropped."""
    waits = capture.records["wait"]
    waits = waits[np.argsort(waits["begin_ns"], kind="stable")]
    seq = index.seq(waits["tid"], waits["call_ns"])
    kept = (seq >= 0) | (waits["call_ns"] == 0)
    waits, seq = waits[kept], seq[kept]
    ends = _ends(capture, waits)
    begin = waits["begin_ns"].astype(np.int64)
    owner_seq = index.seq_at(waits["owner_tid"], begin)
    with_ino = (waits["what"] == 1) | (waits["what"] == 2)
    return {
        "ts_ns": begin + (capture.start_real_ns - capture.start_mono_ns),
        "dur_ns": np.ma.masked_less(np.where(ends > 0, ends - begin, -1), 0),
        "pid": waits["pid"].astype(np.int32),
        "tid": waits["tid"].astype(np.int32),
        "seq": np.ma.masked_less(seq, 0),
        "kind": symbols(waits["kind"], KINDS),
        "object": symbols(waits["what"], OBJECTS),
        "address": np.ma.masked_equal(waits["object"].view(np.int64), 0),
        "dev": np.ma.masked_equal(waits["dev"].astype(np.int64), 0),
        "ino": np.ma.array(waits["ino"].view(np.int64), mask=~with_ino),
        "owner_pid": np.ma.masked_equal(waits["owner_pid"].astype(np.int32), 0),
        "owner_tid": np.ma.masked_equal(waits["owner_tid"].astype(np.int32), 0),
        "owner_comm": comms.column(waits["owner_comm"], waits["owner_comm"] == b""),
        "owner_seq": np.ma.masked_less(owner_seq, 0),
        "owner_shares": waits["flags"] & SHARED > 0,
    }


def _ends(capture: Capture, waits: Records) -> Int:
    """Return the end of each wait, recorded or that of the absence after it; 0 if unknown."""
    ends = waits["end_ns"].astype(np.int64)
    switches = capture.records["switch"]
    for kind, frames in FRAMES.items():
        open_waits = np.nonzero((waits["kind"] == KINDS.index(kind)) & (waits["end_ns"] == 0))[0]
        if len(open_waits):
            known = np.isin(switches["stack"], capture.stacks_with(*frames))
            asleep = switches[known & (switches["state"] == BLOCKED)]
            asleep = asleep[np.lexsort((asleep["out_ns"], asleep["tid"]))]
            ends[open_waits] = _absence_ends(waits[open_waits], asleep)
    return ends


def _absence_ends(waits: Records, asleep: Records) -> Int:
    """Return for each wait the end of the next absence of its thread, in the same call."""
    ends = np.zeros(len(waits), np.int64)
    for tid in np.unique(waits["tid"]):
        own = np.nonzero(waits["tid"] == tid)[0]
        absent = asleep[
            np.searchsorted(asleep["tid"], tid) : np.searchsorted(asleep["tid"], tid, "right")
        ]
        begin = waits["begin_ns"][own]
        at = np.searchsorted(absent["out_ns"], begin)
        found = at < len(absent)
        own, at = own[found], at[found]
        same = absent["call_ns"][at] == waits["call_ns"][own]
        # The absence belongs to the last wait before it.
        following = np.append(waits["begin_ns"][own][1:], np.iinfo(np.uint64).max)
        same &= absent["out_ns"][at] <= following
        ends[own[same]] = absent["in_ns"][at[same]]
    return ends
