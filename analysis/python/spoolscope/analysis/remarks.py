"""Sentences on what makes an answer partial."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

import duckdb

from spoolscope.analysis.hangs import hanging
from spoolscope.analysis.split import Split

KERNELS = ((5, 15), (6, 18))
"""The first and last kernel for whose stacks the rules were written."""

# Facts that are missing without a program of the recorder, by the prefix of its name.
_NEEDS = {
    "on_contention": "which thread held a lock",
    "on_posix_lock": "which process held a file lock (fcntl)",
    "on_flock": "which process held a file lock (flock)",
    "on_rq_complete": "what the disks were busy with",
    "on_work": "what limits of control groups held back",
    "on_jbd2_start": "commits of ext3 and ext4",
    "on_xfs_iclog_done": "log writes of xfs",
    "on_btrfs_sync_file": "log commits of btrfs",
    "on_waking": "which thread woke which",
}

# Without permission to read /proc/kallsyms the recorder stores addresses.
_NAMELESS = """
WITH nameless AS (
    SELECT stack_id FROM stacks GROUP BY stack_id HAVING bool_and(symbol LIKE '0x%')
)
SELECT CAST(coalesce(sum(dur_ns), 0) AS BIGINT) FROM named_waits
WHERE shown AND stack_id IN (SELECT stack_id FROM nameless)
"""


def remarks(
    con: duckdb.DuckDBPyConnection, meta: Mapping[str, Any], parts: Split, *, blame: bool
) -> list[str]:
    """Return a sentence on each thing that the answer lacks; none if it is whole.

    Args:
        con: Needs ``named_waits``.
        meta: meta.json of the trace.
        parts: Errors of the sums of parts.
        blame: Also list what the blame lacks.
    """
    return [
        *hanging(con, meta),
        *_imported(meta),
        *_lost(con, meta),
        *_nameless(meta),
        *_segments(parts),
        *_unnamed(con, meta, parts),
        *(_evidence(meta) if blame else ()),
    ]


def _lost(con: duckdb.DuckDBPyConnection, meta: Mapping[str, Any]) -> Iterator[str]:
    if lost := int(meta.get("lost", 0)):
        yield f"{lost:,} records were lost while recording; their time is missing."
    if shed := int(meta.get("shed", 0)):
        yield f"{shed:,} reads and writes were left out to keep to --max-overhead."
    others = con.execute(
        "SELECT kind, CAST(sum(n) AS BIGINT) FROM losses WHERE kind NOT IN ('syscall', 'shed') "
        "GROUP BY kind ORDER BY kind"
    ).fetchall()
    if others:
        said = ", ".join(f"{kind} {n:,}" for kind, n in others)
        yield f"Of the records lost, by kind: {said}; what they would have explained is not."
    if not meta.get("complete", False):
        yield "The recorder did not declare this trace complete."


def _nameless(meta: Mapping[str, Any]) -> Iterator[str]:
    calls, nameless = int(meta["counts"]["syscalls"]), int(meta.get("paths_unresolved", 0))
    if nameless > 0.01 * calls:
        yield (
            f"The names of {nameless:,} of {calls:,} calls are not known: they are in no sum by "
            "directory, mailbox or file, and a replay cannot make those calls that need them."
        )


def _segments(parts: Split) -> Iterator[str]:
    blocked = parts.blocked_ns
    if blocked and parts.without_segment_ns > 0.001 * blocked:
        share = 100 * parts.without_segment_ns / blocked
        yield f"{share:.1f} % of blocked time has no segment, so no cause is known."
    if parts.stray_segments:
        yield f"{parts.stray_segments:,} segments belong to no call of this trace."
    if parts.segment_error_ns:
        yield (
            "Segments and calls differ by up to "
            f"{parts.segment_error_ns:,} ns in one call: segments were lost."
        )


def _unnamed(
    con: duckdb.DuckDBPyConnection, meta: Mapping[str, Any], parts: Split
) -> Iterator[str]:
    ((nameless,),) = con.execute(_NAMELESS).fetchall()
    if nameless > 0.001 * parts.blocked_ns:
        yield (
            f"{100 * nameless / parts.blocked_ns:.1f} % of blocked time has stacks without names "
            "of functions (the recorder could not read them), so no cause is known."
        )
    ((unknown,),) = con.execute(
        "SELECT CAST(coalesce(sum(dur_ns), 0) AS BIGINT) FROM named_waits "
        "WHERE shown AND cause = 'unexplained' AND stack_id IS NOT NULL"
    ).fetchall()
    version = _version(str(meta.get("kernel", "")))
    if version and not KERNELS[0] <= version <= KERNELS[1] and unknown > 0.005 * parts.blocked_ns:
        first, last = (".".join(map(str, kernel)) for kernel in KERNELS)
        yield (
            f"This trace is of Linux {meta['kernel']}; the rules are for {first} to {last}, and "
            f"{100 * unknown / parts.blocked_ns:.1f} % of blocked time has a stack they do not "
            "know: see --unknown."
        )


def _version(release: str) -> tuple[int, int] | None:
    found = re.match(r"(\d+)\.(\d+)", release)
    return (int(found[1]), int(found[2])) if found else None


def _imported(meta: Mapping[str, Any]) -> Iterator[str]:
    """Yield sentences on facts that an import does not have, and so cannot be explained."""
    if imported := meta.get("imported"):
        yield (
            f"Imported from {imported['from']}: there are no segments, so nothing tells what the "
            "time of a call was spent on. All of it is called unexplained."
        )
        if n := imported.get("without_duration"):
            yield f"{n:,} calls were imported without their duration and count as 0."


def _evidence(meta: Mapping[str, Any]) -> Iterator[str]:
    """Yield what the blame lacks; BPF programs for filesystems not in use do not count."""
    if meta.get("tier") in ("T0", "T1"):
        yield (
            f"Tier {meta['tier']}: commits, locks and requests were not recorded, so the blame "
            "rests on which thread woke which."
        )
        return
    programs = meta.get("programs") or {}
    absent = set(programs.get("missing") or ()) - set(programs.get("unloaded") or ())
    absent -= set(programs.get("instead") or ())
    if lacking := [what for name, what in _NEEDS.items() if name in absent]:
        yield f"Not recorded, so nobody is blamed by it: {'; '.join(lacking)}."
