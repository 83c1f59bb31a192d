"""The commits table, made from the journal events of each filesystem."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spoolscope.tracers.call_index import CallIndex
from spoolscope.tracers.commit_askers import Askers, comms_of
from spoolscope.tracers.commits_by_sleep import BySleep
from spoolscope.tracers.events import BLOCKED
from spoolscope.traces import constants
from spoolscope.traces.capture import Capture, Records
from spoolscope.traces.comms import Comms
from spoolscope.traces.evidence import COMMITS

START, LOCKING, FLUSHING, LOGGING, DONE, WAKE, CHECKPOINT, STATS, HANDLE = (
    constants.JBD2_START,
    constants.JBD2_LOCKING,
    constants.JBD2_FLUSHING,
    constants.JBD2_LOGGING,
    constants.JBD2_END,
    constants.JBD2_WAKE,
    constants.JBD2_CHECKPOINT,
    constants.JBD2_RUN_STATS,
    constants.JBD2_HANDLE,
)
LOG_FORCE, ICLOG_SYNC, ICLOG_DONE = (
    constants.XFS_LOG_FORCE,
    constants.XFS_ICLOG_SYNC,
    constants.XFS_ICLOG_DONE,
)
SYNC_FILE, BTRFS_COMMIT, BTRFS_WRITE = (
    constants.BTRFS_SYNC_FILE,
    constants.BTRFS_COMMIT,
    constants.BTRFS_WRITE,
)
# Events that commits are put together from, of jbd2, xfs and btrfs.
_EVENTS = (
    (WAKE, START, LOCKING, FLUSHING, LOGGING, HANDLE, STATS, DONE),
    (LOG_FORCE, ICLOG_SYNC, ICLOG_DONE),
    (SYNC_FILE, BTRFS_COMMIT, BTRFS_WRITE),
)
COMMIT_FRAME = "btrfs_commit_transaction"
WAIT_FRAME = "jbd2_log_wait_commit"
ASK_FRAMES = ("__jbd2_log_start_commit", "jbd2_log_start_commit")
Commit = dict[str, Any]
Int = npt.NDArray[np.int64]
_COLUMNS = [c.name for c in COMMITS.columns]


def commit_columns(capture: Capture, index: CallIndex, comms: Comms) -> dict[str, Any]:
    """Return the columns of the commits table, each commit put together from its events."""
    journal = capture.records["journal"]
    journal = journal[np.argsort(journal["ts_ns"], kind="stable")]
    of_jbd2, of_xfs, of_btrfs = (journal[np.isin(journal["event"], k)] for k in _EVENTS)
    commits = [
        *(Jbd2(capture, index).commits(of_jbd2) if len(of_jbd2) else ()),
        *(Xfs(capture, index).commits(of_xfs) if len(of_xfs) else ()),
        *(Btrfs(capture, index).commits(of_btrfs) if len(of_btrfs) else ()),
        *BySleep(capture, index).commits(),
    ]
    shift = capture.start_real_ns - capture.start_mono_ns
    for commit in commits:
        commit["ts_ns"] += shift
        for name in ("comm", "trigger_comm", "holder_comm"):
            if name in commit:
                commit[name] = comms.text(commit[name])
    return {name: pa.array([c.get(name) for c in commits]) for name in _COLUMNS}


def _commit(event: np.void, kind: str, start: int, end: int) -> Commit:
    return {
        "ts_ns": start,
        "dur_ns": end - start,
        "dev": int(event["dev"]) or None,
        "kind": kind,
        "txn_id": int(event["id"].astype(np.int64)),
        "tid": int(event["tid"]),
        "comm": bytes(event["comm"]),
        "trigger": "unknown",
    }


def _name_trigger(commit: Commit, event: np.void, seq: int, kind: str) -> None:
    commit["trigger"] = kind
    commit["trigger_pid"], commit["trigger_tid"] = int(event["pid"]), int(event["tid"])
    commit["trigger_comm"] = bytes(event["comm"])
    commit["trigger_seq"] = seq if seq >= 0 else None
    commit["trigger_stack_id"] = int(event["stack"]) or None


def _name_holder(commit: Commit, handles: list[tuple[np.void, int]], locking: int) -> None:
    """Note the last of the handles that ended while the commit waited for them, as its holder."""
    commit["handles"] = len(handles)
    if handles:
        event, seq = handles[-1]
        commit["holder_pid"], commit["holder_tid"] = int(event["pid"]), int(event["tid"])
        commit["holder_comm"] = bytes(event["comm"])
        commit["holder_seq"] = seq if seq >= 0 else None
        commit["holder_ns"] = max(0, int(event["ts_ns"]) - locking)


class Jbd2:
    """ext3 and ext4: tracepoints give the phases; the waker of the thread is the trigger.

    A commit that is requested while another one runs needs no wakeup: kjournald2 goes on by itself.
    Then the trigger is the first call that was waiting across the end of the previous commit.
    """

    def __init__(self, capture: Capture, index: CallIndex) -> None:
        self._stacks = capture.stacks_with(WAIT_FRAME)
        self._asking = set(capture.stacks_with(*ASK_FRAMES).tolist())
        self._askers = Askers(capture)
        switches = capture.records["switch"]
        waits = switches[np.isin(switches["stack"], self._stacks) & (switches["call_ns"] > 0)]
        self._waits = waits = waits[np.argsort(waits["out_ns"], kind="stable")]
        # Columns of their own: a search in one of records would copy it each time.
        self._out_ns, self._in_ns = (np.ascontiguousarray(waits[n]) for n in ("out_ns", "in_ns"))
        self._wait_seq = index.seq(self._waits["tid"], self._waits["call_ns"])
        # A call may wait several times: the end of its last wait.
        calls, of_wait = np.unique(waits["call_ns"], return_inverse=True)
        last_ns = np.zeros(len(calls), np.uint64)
        np.maximum.at(last_ns, of_wait, self._in_ns)
        self._last_ns = last_ns[of_wait]
        self._latest_ns = np.maximum.accumulate(self._in_ns)
        self._index, self._comms = index, comms_of(capture)

    def commits(self, journal: Records) -> list[Commit]:
        """Walk the events of all jbd2 threads, in order of time."""
        journal = journal[self._tells(journal)]
        commits: list[Commit] = []
        running: dict[int, dict[int, int]] = {}
        wakes: dict[int, tuple[np.void, int]] = {}
        blocks: dict[int, int] = {}
        previous_end: dict[int, int] = {}
        held: dict[tuple[int, int], list[tuple[np.void, int]]] = {}
        seqs = self._index.seq(journal["tid"], journal["call_ns"])
        columns = (journal[name].tolist() for name in ("event", "tid", "ts_ns"))
        for event, seq, kind, tid, now in zip(journal, seqs.tolist(), *columns, strict=True):
            if kind == WAKE:
                wakes[int(event["a"])] = (event, seq)
            elif kind == START:
                running[tid] = {START: now}
            elif kind in (LOCKING, FLUSHING, LOGGING) and tid in running:
                running[tid][kind] = now
            elif kind == HANDLE:
                held.setdefault((int(event["dev"]), int(event["id"])), []).append((event, seq))
            elif kind == STATS:
                blocks[tid] = int(event["a"])
            elif kind == DONE and tid in running:
                times = running.pop(tid)
                commit = self._finished(event, times, now)
                commit["blocks"] = blocks.pop(tid, None)
                wake = wakes.pop(tid, None)
                self._trigger(commit, wake, times[START], previous_end.get(tid, 0))
                handles = held.pop((int(event["dev"]), int(event["id"])), [])
                _name_holder(commit, handles, times.get(LOCKING, times[START]))
                previous_end[tid] = now
                commits.append(commit)
        return commits

    def _tells(self, journal: Records) -> npt.NDArray[np.bool_]:
        """Return which events tell of commits.

        Wakeups that do not ask for one hand over a lock or end an I/O; no commit waits for handles
        without blocks.
        """
        stacks = np.unique(journal["stack"])
        asking = [n for n in stacks.tolist() if n in self._asking or self._askers.of(n) == "timer"]
        kinds = journal["event"]
        asks = (kinds != WAKE) | np.isin(journal["stack"], np.array(asking, stacks.dtype))
        told: npt.NDArray[np.bool_] = asks & ((kinds != HANDLE) | (journal["b"] > 0))
        return told

    def _finished(self, event: np.void, times: dict[int, int], end: int) -> Commit:
        commit = _commit(event, "jbd2_commit", times[START], end)
        locking = times.get(LOCKING, times[START])
        flushing = times.get(FLUSHING, locking)
        logging = times.get(LOGGING, flushing)
        commit["locking_ns"] = flushing - locking
        commit["flushing_ns"] = logging - flushing
        commit["logging_ns"] = end - logging
        return commit

    def _trigger(
        self, commit: Commit, wake: tuple[np.void, int] | None, start: int, previous_end: int
    ) -> None:
        if wake is not None and int(wake[0]["ts_ns"]) <= start:
            event, seq = wake
            kind = self._askers.kind(event, seq)
            if self._askers.kind(event, -1) == "timer":
                commit["trigger"] = "timer"  # an interrupt: the task that was running is no trigger
            else:
                _name_trigger(commit, event, seq, kind)
            return
        # Waits are in order of their beginning; those before `low` have ended before previous_end.
        low = int(self._latest_ns.searchsorted(np.uint64(previous_end)))
        high = int(self._out_ns.searchsorted(np.uint64(start), "right"))
        waited = self._in_ns[low:high] >= previous_end
        candidates = low + np.flatnonzero(waited & (self._last_ns[low:high] > start))
        if len(candidates):
            waiting = self._waits
            first = candidates[np.argmin(waiting["call_ns"][candidates])]
            tid = int(waiting["tid"][first])
            commit["trigger"] = "call"
            commit["trigger_pid"], commit["trigger_tid"] = int(waiting["pid"][first]), tid
            commit["trigger_seq"] = int(self._wait_seq[first])
            commit["trigger_comm"] = self._comms.get(tid, b"")
            commit["trigger_stack_id"] = int(waiting["stack"][first])


class Xfs:
    """xfs: one commit per log write, from the sync of an iclog to its completion.

    The trigger is the task that syncs the iclog within its own call, or else the task that last
    forced the log, if its call still waits.
    """

    def __init__(self, capture: Capture, index: CallIndex) -> None:
        self._askers, self._index = Askers(capture), index

    def commits(self, journal: Records) -> list[Commit]:
        """Walk the events of all logs, in order of time."""
        row = self._index.row(journal["tid"], journal["call_ns"])
        seqs, ends = self._index.seq_of(row), self._index.end_of(row)
        commits: list[Commit] = []
        begun: dict[int, tuple[np.void, int]] = {}
        forced: dict[int, tuple[np.void, int, int]] = {}
        for event, seq, end in zip(journal, seqs.tolist(), ends.tolist(), strict=True):
            kind = int(event["event"])
            if kind == LOG_FORCE:
                forced[int(event["dev"])] = (event, seq, end)
            elif kind == ICLOG_SYNC:
                begun[int(event["id"])] = (event, seq)
            elif kind == ICLOG_DONE and int(event["id"]) in begun:
                first, own_seq = begun.pop(int(event["id"]))
                start = int(first["ts_ns"])
                commit = _commit(first, "xfs_log_write", start, int(event["ts_ns"]))
                commit["blocks"] = int(first["a"])
                asker = (first, own_seq)
                force = forced.get(int(first["dev"]))
                # A task in no call waits as long as it takes.
                if own_seq < 0 and force is not None and (force[1] < 0 or force[2] >= start):
                    asker = force[:2]
                _name_trigger(commit, *asker, self._askers.kind(*asker))
                commits.append(commit)
        return commits


class Btrfs:
    """btrfs: an fsync commits a log tree in its call; a transaction commit reports its end.

    The start of a commit follows from the absences of its thread from the CPU: it is after the last
    one outside btrfs_commit_transaction. Without absences inside, it is the start of the writing.
    """

    def __init__(self, capture: Capture, index: CallIndex) -> None:
        self._askers, self._index = Askers(capture), index
        switches = capture.records["switch"]
        self._switches = switches[np.lexsort((switches["out_ns"], switches["tid"]))]
        self._inside = capture.stacks_with(COMMIT_FRAME)

    def commits(self, journal: Records) -> list[Commit]:
        """Walk the events of all btrfs, in order of time."""
        row = self._index.row(journal["tid"], journal["call_ns"])
        seqs, ends = self._index.seq_of(row), self._index.end_of(row)
        found: list[Commit] = []
        written: dict[int, int] = {}  # thread: when it began to write a tree
        logs: dict[int, Commit] = {}  # thread: its fsync
        for event, seq, end in zip(journal, seqs.tolist(), ends.tolist(), strict=True):
            kind, tid, now = int(event["event"]), int(event["tid"]), int(event["ts_ns"])
            if kind == SYNC_FILE:
                until = end if end >= 0 else now
                commit = logs[tid] = _commit(event, "btrfs_log_commit", now, until)
                written.pop(tid, None)
            elif kind == BTRFS_WRITE:
                written[tid] = now
                log = logs.get(tid)
                if log and "logging_ns" not in log and now < log["ts_ns"] + log["dur_ns"]:
                    log["flushing_ns"] = now - log["ts_ns"]
                    log["logging_ns"] = log["dur_ns"] - log["flushing_ns"]
                continue
            elif kind == BTRFS_COMMIT:
                commit = self._transaction(event, written.pop(tid, now))
            else:
                continue
            timer = bytes(event["comm"]).startswith(b"btrfs-transacti")
            _name_trigger(commit, event, seq, "timer" if timer else self._askers.kind(event, seq))
            found.append(commit)
        return found

    def _transaction(self, event: np.void, writes: int) -> Commit:
        end = int(event["ts_ns"])
        start = min(writes, self._began(event))
        commit = _commit(event, "btrfs_commit", start, end)
        if writes < end:
            commit["flushing_ns"], commit["logging_ns"] = writes - start, end - writes
        return commit

    def _began(self, event: np.void) -> int:
        """Return the first time at which the thread is known to commit, or that of the event."""
        low, high = np.searchsorted(self._switches["tid"], [event["tid"], int(event["tid"]) + 1])
        own = self._switches[low:high]
        own = own[(own["in_ns"] <= event["ts_ns"]) & (own["call_ns"] == event["call_ns"])]
        inside = np.isin(own["stack"], self._inside)
        others = np.nonzero(~inside & (own["state"] == BLOCKED))[0]
        since = own[others[-1] + 1 :] if len(others) else own
        asleep = since[np.isin(since["stack"], self._inside)]
        if not len(asleep):
            return int(event["ts_ns"])
        is_thread = int(event["call_ns"]) == 0 and len(others)
        return int(own["in_ns"][others[-1]] if is_thread else asleep["out_ns"][0])
