"""Import of block traces that other tools made: a trace with block tables only.

blktrace's files have nanoseconds and, mostly, the time of day. Text has times since an unknown
moment; the modification time of the file is then taken as the time of its last event.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from spoolscope.tracers.blktrace.columns import request_columns, stage_columns
from spoolscope.tracers.blktrace.records import MAGIC, Events, read_events
from spoolscope.tracers.blktrace.text import TextEvents
from spoolscope.traces.comms import Comms
from spoolscope.traces.digests import write_meta
from spoolscope.traces.errors import SpoolscopeError
from spoolscope.traces.output import check_output, discard, publish, work_directory
from spoolscope.traces.parquet import empty_table, write_table
from spoolscope.traces.phases import Progress
from spoolscope.traces.private import KEPT, Hiding, Private
from spoolscope.traces.schema import SCHEMA
from spoolscope.traces.version import version

FORMS = ("blktrace", "blkparse", "ftrace")
_MAKE = {
    "blktrace": "give all files that blktrace wrote, as sda.blktrace.0 and sda.blktrace.1",
    "blkparse": "give what 'blkparse -i sda' prints, without -f",
    "ftrace": "give the text of 'trace' or 'trace_pipe' with the tracer blk or events block:*",
}
_LOOKED_AT, _LONGEST = 1000, 4096
"""Lines, and characters in each, by which text is recognised."""
_EMPTY = ("syscalls", "paths", "threads", "losses")
Facts = dict[str, Any]


def import_blocks(
    files: Sequence[Path], form: str, output: Path, hiding: Hiding | None, progress: Progress
) -> Facts:
    """Write the trace of a block trace, and return its meta.

    Args:
        files: The files that blktrace wrote, one for each CPU, or text.
        form: One of ``FORMS``.
        output: Trace directory to write; it appears when it is whole.
        hiding: How names of programs are hidden, or None to keep them.
        progress: Called with the phase.

    Raises:
        SpoolscopeError: a file cannot be read, or there is no event in them.
    """
    check_output(output)
    progress(f"reading {form}", None)
    events, facts = _binary(files) if form == "blktrace" else _text(files, form)
    if not len(events):
        if form == "blktrace":
            _refuse_text(files)
        raise SpoolscopeError(
            f"no block event in {files[0]}{' and others' if len(files) > 1 else ''}",
            remedy=_MAKE[form],
        )
    work = work_directory(output)
    try:
        meta = _write(work, events, facts, files, hiding, progress)
        publish(work, output)
    except OverflowError as error:
        discard(work)
        raise SpoolscopeError(
            f"{files[0]} has numbers that no disk has: it is damaged", remedy=_MAKE[form]
        ) from error
    except BaseException:
        discard(work)
        raise
    return meta


def _binary(files: Sequence[Path]) -> tuple[Events, Facts]:
    events = read_events(files)
    facts = {
        "from": "blktrace",
        "lost": events.lost + events.skipped,
        "foreign_bytes": events.foreign_bytes,
        "wall_ns": events.wall_ns,
    }
    return events, facts


def _refuse_text(files: Sequence[Path]) -> None:
    """Refuse files that are the text of another program."""
    for file in files:
        with file.open(encoding="utf-8", errors="replace") as text:
            events = TextEvents()
            events.read(text.readline(_LONGEST) for _ in range(_LOOKED_AT))
        if events.form:
            raise SpoolscopeError(
                f"{file} is text of {events.form}",
                remedy=f"use 'spoolscope import {events.form}'",
            )


def _text(files: Sequence[Path], form: str) -> tuple[TextEvents, Facts]:
    events = TextEvents()
    for file in files:
        try:
            with file.open("rb") as opened:
                if int.from_bytes(opened.read(4), "little") == MAGIC:
                    raise SpoolscopeError(
                        f"{file} is binary", remedy="use 'spoolscope import blktrace'"
                    )
            with file.open(encoding="utf-8", errors="replace") as text:
                events.read(text)
        except OSError as error:
            raise SpoolscopeError(
                f"cannot read {file}: {error.strerror}", remedy=_MAKE[form]
            ) from error
    if len(events) and events.form != form:
        raise SpoolscopeError(
            f"{files[0]} is text of {events.form}", remedy=f"use 'spoolscope import {events.form}'"
        )
    facts = {
        "from": form,
        "lines": events.lines,
        "not_understood": events.not_understood,
        "other_lines": events.other,
        "lost": events.lost,
        "wall_ns": None,
    }
    return events, facts


def _write(
    work: Path,
    events: Events | TextEvents,
    facts: Facts,
    files: Sequence[Path],
    hiding: Hiding | None,
    progress: Progress,
) -> Facts:
    private = Private(hiding) if hiding is not None else None
    comms = private.comms if private is not None else Comms(None)
    first, last, cpus = _span(events)
    wall_ns = facts.pop("wall_ns")
    if wall_ns is None:
        wall_ns = max(file.stat().st_mtime_ns for file in files) - last
        facts["times"] = "relative"
    progress("joining the events of each request", None)
    stages = stage_columns(events, wall_ns, comms)
    lost, unread = int(facts["lost"]), int(facts.get("foreign_bytes", 0))
    doubts = lost + unread + int(facts.get("not_understood", 0))
    facts |= {"events": len(events), "files": len(files), "whole": not doubts}
    meta = _meta(facts, wall_ns + first, last - first, cpus, complete=not doubts)
    meta |= {"lost": lost, "bytes_unread": unread}
    meta = private.meta(meta) if private is not None else meta
    footer = {k: str(meta[k]) for k in ("schema", "version", "kernel", "tier", "complete")}
    tables: dict[str, Any] = {"block_stages": stages, "block_ios": request_columns(stages)}
    tables |= {name: _none(name) for name in _EMPTY}
    meta["counts"] = {n: write_table(work, n, columns, footer) for n, columns in tables.items()}
    meta["unbooked"] = private.remember() if private is not None else None
    write_meta(work, meta)
    return meta


def _none(name: str) -> dict[str, Any]:
    table = empty_table(name)
    return dict(zip(table.column_names, table.columns, strict=True))


def _span(events: Events | TextEvents) -> tuple[int, int, int]:
    """Return the times of the first and the last event, ns, and how many CPUs are named."""
    times, cpus = [], 0
    for event in events:
        times.append(event.time_ns)
        cpus = max(cpus, event.cpu + 1)
    return min(times), max(times), cpus


def _meta(facts: Facts, start_ns: int, duration_ns: int, cpus: int, *, complete: bool) -> Facts:
    """Return meta.json as a recorder would write it, without spools and calls."""
    return {
        "schema": SCHEMA,
        "version": version(),
        "kernel": "unknown",
        "arch": "unknown",
        "cpus": cpus,
        "start_ns": start_ns,
        "snapshot_ns": start_ns,
        "duration_ns": duration_ns,
        "clock_drift_ns": None,
        "spools": [],
        "tier": "T0",
        "programs": {},
        "complete": complete,
        "segment": 0,
        "ended": None,
        "closed": True,
        "bytes_unread": 0,
        "lost": 0,
        "shed": 0,
        "requests_unfinished": None,
        "lost_records": {},
        "paths_unresolved": 0,
        "calls_in_flight": 0,
        "compat_calls": 0,
        "calls_unjudged": 0,
        "unjudged": [],
        "requests_not_completed": 0,
        "records_rescued": 0,
        "recorder_cpu_ns": None,
        "overhead_ppm": None,
        "max_overhead_ppm": None,
        "tree": False,
        "sample_hz": None,
        "snapshot": {"kind": "none"},
        "io_limits": [],
        "edge": {},
        "pseudonymised": False,
        "key_id": None,
        "program_names": KEPT,
        "filter": {},
        "block_trace": {"by": facts["from"], "lost": facts["lost"], "events": facts["events"]},
        "imported": facts,
    }
