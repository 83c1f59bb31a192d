"""The journal_events table: events of journals other than commits."""

from collections.abc import Callable
from typing import Any

import numpy as np

from spoolscope.tracers.call_index import CallIndex
from spoolscope.traces import constants
from spoolscope.traces.capture import Capture
from spoolscope.traces.comms import Comms

# enum spsc_journal_event
CHECKPOINT, HANDLE, CHECKPOINT_DONE, LOG_TAIL, LOCK_STALL = (
    constants.JBD2_CHECKPOINT,
    constants.JBD2_HANDLE,
    constants.JBD2_CHECKPOINT_DONE,
    constants.JBD2_LOG_TAIL,
    constants.JBD2_LOCK_STALL,
)
LOG_FORCE, CIL_PUSH, CIL_PUSHED, AIL_STUCK = (
    constants.XFS_LOG_FORCE,
    constants.XFS_CIL_PUSH,
    constants.XFS_CIL_PUSHED,
    constants.XFS_AIL_STUCK,
)
SYNC_FS, TREE_WRITE, ORDERED_ADD, ORDERED_DONE = (
    constants.BTRFS_SYNC_FS,
    constants.BTRFS_WRITE,
    constants.BTRFS_ORDERED_ADD,
    constants.BTRFS_ORDERED_DONE,
)
INNER_FORCE = ("xfs_log_force", "xfs_log_force_seq", "xlog_cil_force_seq")
STUCK = {1: "ail_pinned", 2: "ail_locked", 3: "ail_flushing"}

Row = dict[str, Any]
_COLUMNS = (
    "ts_ns", "dur_ns", "dev", "event", "id", "amount", "pid", "tid", "comm", "seq", "stack_id",
)  # fmt: skip


def journal_columns(capture: Capture, index: CallIndex, comms: Comms) -> dict[str, Any]:
    """Return one row per event, or per pair of beginning and end."""
    journal = capture.records["journal"]
    journal = journal[np.isin(journal["event"], (*_MAKERS, CIL_PUSHED, ORDERED_DONE))]
    journal = journal[np.argsort(journal["ts_ns"], kind="stable")]
    # A log force of a sequence calls a force of the whole log: the inner event is redundant.
    inner = capture.stacks_with(*INNER_FORCE)
    journal = journal[(journal["event"] != LOG_FORCE) | ~np.isin(journal["stack"], inner)]
    seqs = index.seq(journal["tid"], journal["call_ns"])
    shift = capture.start_real_ns - capture.start_mono_ns
    rows: list[Row] = []
    begun: dict[tuple[int, int], Row] = {}  # by kind of the end event, and extent or thread
    for event, seq in zip(journal, seqs.tolist(), strict=True):
        kind = int(event["event"])
        if kind in (CIL_PUSHED, ORDERED_DONE):
            if first := begun.pop((kind, int(event["id"] or event["tid"])), None):
                first["dur_ns"] = int(event["ts_ns"]) + shift - first["ts_ns"]
            continue
        row = _row(event, seq, comms, shift)
        row |= _MAKERS[kind](event)
        row["ts_ns"] -= row.pop("before_ns", 0)
        if kind == CIL_PUSH:
            begun[CIL_PUSHED, int(event["tid"])] = row
        elif kind == ORDERED_ADD:
            begun[ORDERED_DONE, int(event["id"])] = row
        rows.append(row)
    return {name: np.array([r[name] for r in rows], object) for name in _COLUMNS}


def _row(event: np.void, seq: int, comms: Comms, shift: int) -> Row:
    return {
        "ts_ns": int(event["ts_ns"]) + shift,
        "dur_ns": None,
        "dev": int(event["dev"]) or None,
        "id": int(event["id"].astype(np.int64)),
        "amount": None,
        "pid": int(event["pid"]),
        "tid": int(event["tid"]),
        "comm": comms.text(bytes(event["comm"])),
        "seq": seq if seq >= 0 else None,
        "stack_id": int(event["stack"]) or None,
    }


def _lasted(name: str, ns: str, amount: str | None = None) -> Callable[[np.void], Row]:
    """Return a maker of rows for an event that is recorded at its end, with its length."""

    def make(event: np.void) -> Row:
        length = int(event[ns])
        out = {"event": name, "dur_ns": length, "before_ns": length}
        return out | ({"amount": int(event[amount])} if amount else {})

    return make


def _plain(name: str, amount: str | None = None, **values: Any) -> Callable[[np.void], Row]:
    def make(event: np.void) -> Row:
        known = {"amount": int(event[amount].astype(np.int64))} if amount else {}
        return {"event": name} | known | values

    return make


def _stuck(event: np.void) -> Row:
    return {"event": STUCK.get(int(event["a"]), "ail_stuck")}


def _ordered(event: np.void) -> Row:
    return {"event": "ordered_extent", "id": int(event["a"]), "amount": int(event["b"])}


_MAKERS: dict[int, Callable[[np.void], Row]] = {
    CHECKPOINT: _plain("checkpoint", "a", id=None),
    HANDLE: _lasted("handle", "a", "b"),
    CHECKPOINT_DONE: _lasted("checkpoint_written", "b", "a"),
    LOG_TAIL: _plain("log_tail", "a"),
    LOCK_STALL: _lasted("lock_stall", "a"),
    LOG_FORCE: _plain("log_force"),
    CIL_PUSH: _plain("cil_push"),
    AIL_STUCK: _stuck,
    SYNC_FS: _plain("sync_fs", id=None),
    TREE_WRITE: _plain("tree_write"),
    ORDERED_ADD: _ordered,
}
