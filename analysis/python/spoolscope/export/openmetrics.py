"""OpenMetrics text: histograms and counters of one recording, at the time of its end."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

from spoolscope.export.content import Content
from spoolscope.export.folded import BY_CAUSE
from spoolscope.traces.text import shown

BOUNDS_NS = tuple(step * 10**power for power in range(3, 11) for step in (1, 2, 5))
"""Upper bounds of buckets: 1, 2 and 5 of every power of ten from 1 µs to 50 s."""

Labels = tuple[str, ...]

_CASES = " ".join(f"WHEN ns <= {bound} THEN {at}" for at, bound in enumerate(BOUNDS_NS))
# A row for each bucket of each set of labels: labels, bucket, number of calls, and their sum.
_COUNTED = """
SELECT * EXCLUDE (ns), CASE {cases} ELSE {last} END AS bucket, CAST(count(*) AS BIGINT) AS n,
    CAST(sum(ns) AS BIGINT) AS ns
FROM ({rows}) GROUP BY ALL ORDER BY ALL
"""

_CALLS = "SELECT comm, syscall, dur_ns AS ns FROM shown_calls"
_COMMITS = "SELECT kind, dur_ns AS ns FROM commits"
_REQUESTS = "SELECT op, queue_ns + device_ns AS ns FROM block_ios"
_BYTES = "SELECT op, CAST(sum(bytes) AS BIGINT) FROM block_ios GROUP BY op ORDER BY op"


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
    duration_ns = content.selection.lasted_ns(int(meta["duration_ns"]))
    part = content.selection.part
    families = _Families(content.start_ns + (part.from_ns if part else 0) + duration_ns)
    yield from families.histogram(
        "spoolscope_call_duration_seconds",
        "Length of system calls.",
        ("program", "call"),
        _counted(content, _CALLS),
    )
    yield from families.counter(
        "spoolscope_call_time_seconds",
        "Time in system calls by what it went into.",
        ("program", "call", "cause"),
        content.rows(BY_CAUSE),
    )
    yield from families.histogram(
        "spoolscope_commit_duration_seconds",
        "Length of journal commits.",
        ("kind",),
        _counted(content, _COMMITS),
    )
    yield from families.histogram(
        "spoolscope_block_request_duration_seconds",
        "Block requests, from their queue to their end.",
        ("op",),
        _counted(content, _REQUESTS),
    )
    yield from families.counter(
        "spoolscope_block_request_size_bytes",
        "Bytes of block requests.",
        ("op",),
        content.rows(_BYTES),
    )
    gauge = families.gauge
    yield from gauge("spoolscope_recording_duration_seconds", "Time recorded.", duration_ns)
    complete, lost = bool(meta.get("complete")), int(meta.get("lost", 0))
    yield from gauge("spoolscope_recording_complete", "1 if nothing was lost, else 0.", complete)
    yield from gauge("spoolscope_recording_lost_calls", "Calls lost.", lost)
    yield "# EOF"


def seconds(ns: int) -> str:
    """Return nanoseconds as seconds, exactly."""
    return f"{'-' if ns < 0 else ''}{abs(ns) // 10**9}.{abs(ns) % 10**9:09}"


def _counted(content: Content, rows: str) -> Iterator[tuple[Any, ...]]:
    return content.rows(_COUNTED.format(cases=_CASES, last=len(BOUNDS_NS), rows=rows))


class _Families:
    """Writer of metric families, all samples with one timestamp."""

    def __init__(self, at_ns: int) -> None:
        self._at = seconds(at_ns)

    def histogram(
        self, name: str, help_: str, labels: Labels, rows: Iterable[Sequence[Any]]
    ) -> Iterator[str]:
        """Yield a histogram of rows of labels, bucket, number and ns."""
        numbers: dict[Labels, Counter[int]] = defaultdict(Counter)
        sums: Counter[Labels] = Counter()
        for *values, bucket, n, ns in rows:
            numbers[_shown(values)][bucket] += n
            sums[_shown(values)] += ns
        yield from _head(name, "histogram", help_)
        bounds = [*(f"{bound / 1e9:g}" for bound in BOUNDS_NS), "+Inf"]
        for key, counted in numbers.items():
            own = dict(zip(labels, key, strict=True))
            below = list(accumulate(counted[at] for at in range(len(bounds))))
            for bound, n in zip(bounds, below, strict=True):
                yield self._sample(f"{name}_bucket", {**own, "le": bound}, str(n))
            yield self._sample(f"{name}_count", own, str(below[-1]))
            yield self._sample(f"{name}_sum", own, seconds(sums[key]))

    def counter(
        self, name: str, help_: str, labels: Labels, rows: Iterable[Sequence[Any]]
    ) -> Iterator[str]:
        """Yield a counter of rows of labels and a number: ns if it counts seconds."""
        sums: Counter[Labels] = Counter()
        for *values, number in rows:
            sums[_shown(values)] += number
        yield from _head(name, "counter", help_)
        for key, number in sums.items():
            own = dict(zip(labels, key, strict=True))
            yield self._sample(f"{name}_total", own, _value(name, number))

    def gauge(self, name: str, help_: str, number: int) -> Iterator[str]:
        """Yield a gauge; the number is in ns if the gauge is in seconds."""
        yield from _head(name, "gauge", help_)
        yield self._sample(name, {}, _value(name, number))

    def _sample(self, name: str, labels: Mapping[str, str], value: str) -> str:
        told = ",".join(f'{label}="{_escaped(text)}"' for label, text in labels.items())
        return f"{name}{f'{{{told}}}' if told else ''} {value} {self._at}"


def _head(name: str, kind: str, help_: str) -> Iterator[str]:
    yield f"# TYPE {name} {kind}"
    unit = name.rpartition("_")[2]
    if unit in ("seconds", "bytes", "calls"):
        yield f"# UNIT {name} {unit}"
    yield f"# HELP {name} {help_}"


def _value(name: str, number: int) -> str:
    return seconds(number) if name.endswith("_seconds") else str(int(number))


def _shown(values: Sequence[str]) -> Labels:
    return tuple(map(shown, values))


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')
