"""OpenMetrics text: histograms and counters of one recording, at the time of its end."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from spoolscope.export.content import Content
from spoolscope.export.exposition import Exposition
from spoolscope.export.folded import BY_CAUSE

BOUNDS_NS = tuple(step * 10**power for power in range(3, 11) for step in (1, 2, 5))
"""Upper bounds of buckets: 1, 2 and 5 of every power of ten from 1 µs to 50 s."""

_CASES = " ".join(f"WHEN ns <= {bound} THEN {at}" for at, bound in enumerate(BOUNDS_NS))
# A row for each bucket of each set of labels: labels, bucket, number of calls, and their sum.
_COUNTED = """
SELECT * EXCLUDE (ns), CASE {cases} ELSE {last} END AS bucket, CAST(count(*) AS BIGINT) AS n,
    CAST(sum(ns) AS BIGINT) AS ns
FROM ({rows}) GROUP BY ALL ORDER BY ALL
"""

_CALLS = "SELECT comm, syscall, dur_ns AS ns FROM shown_calls"
_COMMITS = "SELECT kind, dur_ns AS ns FROM commits WHERE in_slice(ts_ns, ts_ns + dur_ns)"
_OF_DISKS = "FROM block_ios WHERE in_slice(ts_ns, ts_ns + queue_ns + device_ns)"
_REQUESTS = f"SELECT op, queue_ns + device_ns AS ns {_OF_DISKS}"
_BYTES = f"SELECT op, CAST(sum(bytes) AS BIGINT) {_OF_DISKS} GROUP BY op ORDER BY op"


class OpenMetrics:
    """One exposition, which ends with ``# EOF``."""

    sentence = "Histograms and counters as OpenMetrics text, for Prometheus and what reads it."
    opens = "promtool tsdb create-blocks-from openmetrics {output} DATA_DIRECTORY"
    call_by_call = False

    def write(self, content: Content, output: Path) -> None:
        """Write the exposition; seconds have nine decimals, so that no nanosecond is lost."""
        with output.open("x", encoding="utf-8") as file:
            for line in _lines(content):
                file.write(f"{line}\n")


def _lines(content: Content) -> Iterator[str]:
    meta = content.trace.meta
    from_ns, to_ns = content.span_ns
    families = Exposition(at_ns=to_ns)
    yield from families.histogram(
        "spoolscope_call_duration_seconds",
        "Length of system calls.",
        ("program", "call"),
        _counted(content, _CALLS),
        BOUNDS_NS,
    )
    yield from families.counter(
        "spoolscope_call_time_seconds",
        "Time in system calls by what it went into.",
        ("program", "call", "cause"),
        content.rows(BY_CAUSE),
    )
    if not content.selection.is_of_some:
        yield from _of_all(content, families)
    complete, lost = bool(meta.get("complete")), int(meta.get("lost", 0))
    for name, help_, number in (
        ("duration_seconds", "Time recorded.", to_ns - from_ns),
        ("complete", "1 if nothing was lost, else 0.", complete),
        ("lost_calls", "Calls lost.", lost),
    ):
        yield from families.gauge(f"spoolscope_recording_{name}", help_, (), [(number,)])
    yield from families.end()


def _of_all(content: Content, families: Exposition) -> Iterator[str]:
    """Yield what all programs cause together: commits, requests of disks."""
    yield from families.histogram(
        "spoolscope_commit_duration_seconds",
        "Length of journal commits.",
        ("kind",),
        _counted(content, _COMMITS),
        BOUNDS_NS,
    )
    yield from families.histogram(
        "spoolscope_block_request_duration_seconds",
        "Block requests, from their queue to their end.",
        ("op",),
        _counted(content, _REQUESTS),
        BOUNDS_NS,
    )
    yield from families.counter(
        "spoolscope_block_request_size_bytes",
        "Bytes of block requests.",
        ("op",),
        content.rows(_BYTES),
    )


def _counted(content: Content, rows: str) -> Iterator[tuple[Any, ...]]:
    return content.rows(_COUNTED.format(cases=_CASES, last=len(BOUNDS_NS), rows=rows))
