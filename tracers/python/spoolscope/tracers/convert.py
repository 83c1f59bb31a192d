"""Capture -> trace: names resolved and pseudonymised, everything as Parquet."""

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from spoolscope.tracers import events
from spoolscope.tracers.blktrace.capture import BlockEvents
from spoolscope.tracers.call_index import CallIndex
from spoolscope.tracers.commits import commit_columns
from spoolscope.tracers.edge import edge
from spoolscope.tracers.faults import fault_columns
from spoolscope.tracers.frozen import frozen_meta, under_way_meta
from spoolscope.tracers.held import lock_columns, mapping_columns
from spoolscope.tracers.inodes import Inodes
from spoolscope.tracers.journal import journal_columns
from spoolscope.tracers.lives import continue_numbering
from spoolscope.tracers.losses import loss_columns, shed_columns
from spoolscope.tracers.path_ids import PathIds
from spoolscope.tracers.resolve import resolve
from spoolscope.tracers.resolved import Resolved
from spoolscope.tracers.syscalls import call_parts
from spoolscope.tracers.threads import Threads, calls_in_flight, task_event_columns
from spoolscope.tracers.uring import uring_columns
from spoolscope.tracers.user_stacks import (
    counts_of_user_stacks,
    user_call_columns,
    user_stack_columns,
)
from spoolscope.tracers.waits import wait_columns
from spoolscope.traces.calls import CALLS, of_effect
from spoolscope.traces.capture import Capture, read_capture
from spoolscope.traces.comms import Comms
from spoolscope.traces.digests import write_meta
from spoolscope.traces.errors import SpoolscopeError
from spoolscope.traces.join import join
from spoolscope.traces.parquet import write_parts, write_table
from spoolscope.traces.phases import Phases, Progress, unseen
from spoolscope.traces.private import KEPT, Hiding, Private
from spoolscope.traces.schema import SCHEMA
from spoolscope.traces.version import version

Columns = dict[str, Any]
DISK_FULL = "disk full"


NEEDED_OF_CALLS = (
    "start_ns", "end_ns", "seq", "ino", "tid", "path", "path2", "longer", "longer2",
)  # fmt: skip
"""Members of calls that tables beside that of the calls need."""
PHASES = {"reading the capture": 1, "following names": 12, "writing calls": 3, "writing tables": 4}
"""Phases of a conversion, and their relative lengths."""


def convert(
    segments: Sequence[Path],
    trace: Path,
    hiding: Hiding | None,
    frozen: Mapping[str, Any] | None = None,
    progress: Progress = unseen,
) -> dict[str, Any]:
    """Write the trace directory of a capture and return its meta.

    Args:
        segments: Files of spoolscope-record; several are consecutive segments, oldest first.
        trace: Directory to fill; must exist.
        hiding: How names are hidden, or None to keep them.
        frozen: Message of a recorder that was frozen at the end of these segments.
        progress: Called with the phase and the share of the work that is done.

    Raises:
        SpoolscopeError: a segment cannot be read, or its records contradict one another.
    """
    try:
        return _convert(segments, trace, hiding, frozen, progress)
    except (ArithmeticError, LookupError, ValueError) as error:
        # A capture is untrusted: its checksums detect damage, but not forged content.
        raise SpoolscopeError(
            f"the records of {segments[0]} contradict one another: {type(error).__name__}: {error}",
            remedy="record again, or report it if spoolscope-record wrote it",
        ) from error


def _convert(
    segments: Sequence[Path],
    trace: Path,
    hiding: Hiding | None,
    frozen: Mapping[str, Any] | None,
    progress: Progress,
) -> dict[str, Any]:
    Phases(progress, PHASES)("reading the capture")
    parts = [read_capture(file) for file in segments]
    capture = join(parts) if len(parts) > 1 else parts[0]
    parts.clear()
    return write(capture, trace, hiding, frozen, BlockEvents.beside(segments[0]), progress)


def write(
    capture: Capture,
    trace: Path,
    hiding: Hiding | None,
    frozen: Mapping[str, Any] | None = None,
    blocks: BlockEvents | None = None,
    progress: Progress = unseen,
) -> dict[str, Any]:
    """Write the trace directory of a capture that is in memory and return its meta.

    Args:
        capture: The capture; its calls are renumbered, and lose members that are written.
        trace: Directory to fill; must exist.
        hiding: How names are hidden, or None to keep them.
        frozen: Message of a recorder that was frozen at the end of these segments.
        blocks: Block events recorded beside it.
        progress: Called with the phase and the share of the work that is done.
    """
    show = Phases(progress, PHASES)
    lives = continue_numbering(capture)
    resolved = resolve(capture, lambda done: show("following names", done))
    names = PathIds(capture, resolved)
    private = _private(capture, resolved, hiding) if hiding is not None else None
    comms = private.comms if private is not None else Comms(None)
    threads = Threads(capture, lives, comms, names.id, resolved.heirs)

    @cache
    def inodes() -> Inodes:
        return Inodes(capture, resolved, names.id, names.device)

    # Tables are made and written one by one, the largest in parts, so that memory stays small.
    tables: dict[str, Callable[[], Columns]] = {
        "samples": lambda: events.sample_columns(capture, index),
        "stacks": lambda: events.stack_columns(capture),
        "threads": lambda: threads.columns(resolved.state),
        "task_events": lambda: task_event_columns(capture, lives, comms, resolved.heirs),
        "commits": lambda: commit_columns(capture, index, comms),
        "journal_events": lambda: journal_columns(capture, index, comms),
        "waits": lambda: wait_columns(capture, index, comms),
        "block_ios": lambda: events.block_columns(capture, index, comms),
        "open_files": lambda: resolved.state.open_files(names.id),
        "xattrs": lambda: resolved.state.xattrs(names.id, names.text_id, names.quiet_ids),
        "missed_names": lambda: resolved.state.missed_names(names.id, names.is_on_spool),
        "held_locks": lambda: lock_columns(capture, inodes),
        "mappings": lambda: mapping_columns(capture, inodes),
        "faults": lambda: fault_columns(capture, index, inodes()),
        "uring_ops": lambda: uring_columns(capture, inodes()),
        "losses": lambda: losses,
        "sheds": lambda: shed_columns(capture),
    }
    if blocks:
        tables["block_stages"] = lambda: blocks.columns(capture, comms)
    if (user := counts_of_user_stacks(capture)) is not None:
        tables["user_calls"] = lambda: user_call_columns(capture, index)
        tables["user_stacks"] = lambda: user_stack_columns(capture, comms)
    losses = loss_columns(capture, lives)
    meta = _meta(capture, resolved, losses)
    meta["edge"] = edge(capture, resolved, names.device)
    if frozen is not None:
        meta["frozen"] = frozen_meta(capture, frozen, meta, inodes)
    going_on = (frozen or {}).get("under_way") or capture.meta.get("under_way") or []
    meta["under_way"] = under_way_meta(capture, going_on, meta, inodes)
    meta["user_stacks"] = user
    meta["block_trace"] = blocks.facts if blocks else None
    meta = private.meta(meta) if private is not None else meta
    footer = {k: str(meta[k]) for k in ("schema", "version", "kernel", "tier", "complete")}
    show("writing calls")
    whole_calls = capture.whole_calls()
    capture.keep_of_calls(NEEDED_OF_CALLS)
    calls = call_parts(capture, whole_calls, resolved, comms, names.device)
    meta["counts"] = {"syscalls": write_parts(trace, "syscalls", calls, footer)}
    del whole_calls, calls
    capture.packed = None
    show("writing tables")
    index = CallIndex(capture.records["syscall"])
    segments = events.segment_parts(capture, index, comms, inodes(), names)
    meta["counts"]["segments"] = write_parts(trace, "segments", segments, footer)
    meta["counts"] |= {n: write_table(trace, n, make(), footer) for n, make in tables.items()}
    tree = resolved.state.tree(names.id, names.text_id, names.quiet_ids)
    meta["counts"]["tree"] = write_parts(trace, "tree", tree, footer)
    meta["counts"]["paths"] = write_parts(trace, "paths", names.columns(private), footer)
    meta["unbooked"] = private.remember() if private is not None else None
    write_meta(trace, meta)
    return meta


def _private(capture: Capture, resolved: Resolved, hiding: Hiding) -> Private:
    """Return what hides private names; it sees all names of the tables before any is written."""
    mounts = [spool["mount"].encode() for spool in capture.meta.get("spools", [])]
    below = tuple(mount.rstrip(b"/") + b"/" for mount in mounts)
    quiet = resolved.state.quiet.telling(all_of_them=b"/" in mounts)
    paths = chain(resolved.paths, resolved.state.named()[2], quiet)
    on_spool = (path for path in paths if path.startswith(below))
    # Relative names that calls looked up may lie on the spool; those of execve may lie elsewhere.
    calls = capture.records["syscall"]
    others = ~np.isin(calls["call"], [CALLS[name].id for name in of_effect("execs")])
    used = np.zeros(len(capture.strings), np.bool_)
    for member in ("path", "path2"):
        used[calls[member][others]] = True
    texts = (capture.strings[number] for number in np.flatnonzero(used).tolist())
    relative = (b"/" + text for text in texts if not text.startswith((b"/", b"..")))
    uids = np.unique(capture.records["task"]["uid"]).tolist()
    return Private(hiding, chain(on_spool, relative), mounts, uids)


def _meta(capture: Capture, resolved: Resolved, losses: Columns) -> dict[str, Any]:
    native = capture.meta
    end = native.get("end_mono_ns", _last(capture))
    on_purpose = losses["kind"] == "shed"
    shed, lost = (int(np.sum(losses["n"][which])) for which in (on_purpose, ~on_purpose))
    counted = int(native.get("lost_records", {}).get("1", 0))  # perhaps located in another segment
    whole = capture.closed and capture.bytes_unread == 0 and native.get("ended") != DISK_FULL
    whole &= native.get("imported", {}).get("whole", True)
    return {
        "schema": SCHEMA,
        "version": version(),
        "kernel": native.get("kernel", "unknown"),
        "arch": native.get("arch", "unknown"),
        "cpus": native.get("cpus"),
        "start_ns": capture.start_real_ns,
        "snapshot_ns": resolved.state.cut_ns + capture.start_real_ns - capture.start_mono_ns,
        "duration_ns": int(end) - capture.start_mono_ns,
        "clock_drift_ns": _drift(capture),
        "spools": native.get("spools", []),
        "tier": native.get("tier", "unknown"),
        "programs": native.get("programs", {}),
        "complete": whole and lost + shed + counted == 0 and bool(native),
        "segment": capture.number,
        "ended": native.get("ended"),
        "closed": capture.closed,
        "bytes_unread": capture.bytes_unread,
        "lost": lost,
        "shed": shed,
        "requests_unfinished": native.get("requests_unfinished"),
        "lost_records": native.get("lost_records", {}),
        "paths_unresolved": resolved.unresolved,
        "calls_in_flight": calls_in_flight(capture),
        "compat_calls": native.get("compat_calls", 0),
        "calls_apart": native.get("calls_apart", 0),
        "calls_through_descriptors": native.get("calls_through_descriptors", 0),
        "aio_calls": native.get("aio_calls", 0),
        "calls_unjudged": native.get("calls_unjudged", 0),
        "unjudged": _unjudged(native),
        "requests_not_completed": native.get("requests_not_completed", 0),
        "records_rescued": native.get("records_rescued", 0),
        "recorder_cpu_ns": native.get("recorder_cpu_ns"),
        "overhead_ppm": native.get("overhead_ppm"),
        "max_overhead_ppm": native.get("max_overhead_ppm"),
        "tree": bool(native.get("tree")),
        "sample_hz": native.get("sample_hz"),
        "snapshot": _snapshot(capture.meta),
        "io_limits": native.get("io_limits", []),
        "pseudonymised": False,
        "key_id": None,
        "program_names": KEPT,
        "filter": native.get("filter", {}),
        "imported": native.get("imported"),
    }


def _unjudged(native: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the processes whose calls could not be judged, and why."""
    groups = native.get("cgroups", {})
    return [
        {
            "comm": str(calls["comm"]),
            "pid": int(calls["pid"]),
            "cgroup": str(groups.get(str(calls["cgroup_id"]), "")),
            "calls": int(calls["calls"]),
            "why": "many names" if calls["why"] == "many names" else "not looked at",
        }
        for calls in native.get("unjudged", [])
    ]


def _snapshot(native: dict[str, Any]) -> dict[str, Any]:
    """Return ``snapshot`` of meta.json: how much of the tree was read."""
    kind = native.get("snapshot", "full") if native.get("tree") else "none"
    kind = kind if native.get("snapshot_whole", True) else "partial"
    read = {"read_bytes": native.get("snapshot_read_bytes")} if kind in ("full", "partial") else {}
    return {"kind": kind, **read, **(native.get("listed") or {})}


def _last(capture: Capture) -> int:
    """Return the latest time in a capture; used if the recorder did not write its end."""
    calls, tasks = capture.records["syscall"]["end_ns"], capture.records["task"]["ts_ns"]
    return max([capture.start_mono_ns, *(int(a.max()) for a in (calls, tasks) if len(a))])


def _drift(capture: Capture) -> int | None:
    """Return how far CLOCK_REALTIME moved against CLOCK_MONOTONIC during the recording."""
    native = capture.meta
    if "end_real_ns" not in native:
        return None
    mono = int(native["end_mono_ns"]) - capture.start_mono_ns
    return int(native["end_real_ns"]) - capture.start_real_ns - mono
