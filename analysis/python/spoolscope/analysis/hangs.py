"""Calls that had not returned when the recording ended: a hang is in no table."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import duckdb

from spoolscope.analysis.causes import BETWEEN_PROGRAMS, CAUSES
from spoolscope.analysis.stack_rules import classify
from spoolscope.analysis.wording import duration

_LISTED = 5

HANGS_NS = 1_000_000_000
"""A call that waits so long for something else than another program is worth a sentence."""


def hanging(con: duckdb.DuckDBPyConnection, meta: Mapping[str, Any]) -> Iterator[str]:
    """Yield a sentence on the calls that hung at the end.

    Servers always wait for locks and messages of other programs: such calls do not hang.

    Args:
        con: A connection of ``Trace.connect``.
        meta: meta.json of the trace.
    """
    found = []
    for call in meta.get("under_way") or ():
        named = classify(call["frames"])
        cause = named.cause if named else None
        if call["dur_ns"] >= HANGS_NS and call["frames"] and cause not in BETWEEN_PROGRAMS:
            found.append((call, cause))
    if not found:
        return
    call, cause = max(found, key=lambda one: one[0]["dur_ns"])
    row = con.execute("SELECT path FROM paths WHERE path_id = ?", [call["path_id"]]).fetchone()
    place = f" {'in' if call['in_directory'] else 'on'} {row[0]}" if row else ""
    waits = f", and waits for {CAUSES[cause].objects}" if cause else ""
    ns = sum(call["dur_ns"] for call, _ in found)
    calls = "1 call" if len(found) == 1 else f"{len(found)} calls"
    yield (
        f"{calls} had not returned when the recording ended: {duration(ns)} that are in no sum. "
        f"The longest is {call['syscall']}{place} of {call['comm']} (process {call['pid']}), "
        f"which had lasted {duration(call['dur_ns'])}{waits}."
    )


def slept_through(found: Sequence[tuple[str, int, Sequence[str]]]) -> Iterator[str]:
    """Yield sentences on threads that slept in the kernel during the whole recording.

    Args:
        found: Name of the program, process, and stack (innermost function first) of each.
    """
    if not found:
        return
    threads = "1 thread" if len(found) == 1 else f"{len(found)} threads"
    yield (
        f"{threads} slept in the kernel during the whole recording, each in a call that began "
        "before it: these calls are in no table, and may be what keeps others waiting"
    )
    for comm, pid, frames in found[:_LISTED]:
        named = classify(list(frames))
        waits = f"waits for {CAUSES[named.cause].objects}" if named else "waits"
        at = f" in {frames[0]}" if frames else ""
        yield f"{comm} (process {pid}) {waits}{at}"
    if len(found) > _LISTED:
        yield f"and {len(found) - _LISTED} more"
