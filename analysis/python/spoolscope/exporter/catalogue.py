"""Every metric of the exporter: name, unit, labels and meaning."""

from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from spoolscope.analysis.causes import BETWEEN_PROGRAMS, CAUSES
from spoolscope.traces.calls import CALLS
from spoolscope.traces.rollups.buckets import SUB_BITS, lower_ns

PREFIX = "spoolscope"
SECONDS = "seconds"


class Kind(StrEnum):
    """Kind of a metric."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"
    INFO = "info"


@dataclass(frozen=True)
class Metric:
    """One metric.

    Attributes:
        kind: What it does over time.
        base: Its name without prefix and unit.
        help: One sentence.
        labels: Names of its labels; their number of values is bounded.
        unit: ``seconds`` or "" for numbers. Times are kept in integer ns.
        counted: For OTLP, the thing that is counted, in the singular.
    """

    kind: Kind
    base: str
    help: str
    labels: tuple[str, ...]
    unit: str = ""
    counted: str = "1"

    @property
    def name(self) -> str:
        """The name of Prometheus, without the suffix of its kind."""
        return f"{PREFIX}_{self.base}{f'_{self.unit}' if self.unit else ''}"

    @property
    def otlp(self) -> tuple[str, str]:
        """The name and unit of OpenTelemetry."""
        return f"{PREFIX}.{self.base}", "s" if self.unit else f"{{{self.counted}}}"


def _times(base: str, help_: str, *labels: str) -> Metric:
    return Metric(Kind.COUNTER, base, help_, labels, SECONDS)


def _counts(base: str, counted: str, help_: str, *labels: str) -> Metric:
    return Metric(Kind.COUNTER, base, help_, labels, "", counted)


def _lengths(base: str, help_: str, *labels: str) -> Metric:
    return Metric(Kind.HISTOGRAM, base, help_, labels, SECONDS)


CALL_DURATION = _lengths("call_duration", "Length of system calls by family.", "dev", "family")
WAIT_DURATION = _lengths(
    "wait_duration", "Part of a call that one cause of waiting took, by group of causes.",
    "dev", "group",
)  # fmt: skip
CALL_TIME = _times(
    "call_time", "Time in system calls by what it went into; the causes add up to all of it.",
    "dev", "cause",
)  # fmt: skip
CALLS_MET = _counts("calls_met", "call", "Calls that met a cause.", "dev", "cause")
FAILED = _counts("failed_calls", "call", "Calls that failed.", "dev", "family")
PROGRAM_CALLS = _counts("program_calls", "call", "Calls by program.", "dev", "program")
PROGRAM_TIME = _times("program_call_time", "Time in calls by program.", "dev", "program")
COMMITS = _counts(
    "commits", "commit", "Journal commits by the program whose call asked for them.",
    "dev", "program",
)  # fmt: skip
COMMIT_TIME = _times("commit_time", "Time of journal commits by program.", "dev", "program")
COMMIT_LONGEST = Metric(
    Kind.GAUGE, "longest_commit", "Longest journal commit of the last minute.", ("dev",), SECONDS
)
DIRECTORY_WAITS = _counts(
    "directory_waits", "call", "Calls that waited in the costliest directories.", "dev"
)
DIRECTORY_TIME = _times(
    "directory_wait_time", "Their wait for blocks and locks of these directories.", "dev"
)
LOST = _counts("lost_calls", "call", "Calls that are in no sum, as they were lost.")
MISSING = _counts("missing_rollups", "minute", "Minutes whose roll-ups are missing.")
COVERED = _times("covered_time", "Time for which the recorder was on.", "dev")
RECORDER_CPU = _times("recorder_cpu", "CPU time of the recorder, in the kernel too.")
RECORDERS = _counts("recorder_starts", "start", "Recorders that took over or started.")
CLOCK_STEPS = _counts("clock_steps", "step", "Minutes in which the clock was set.")
LAST_MINUTE = Metric(
    Kind.GAUGE, "last_minute_timestamp", "End of the minute that came last.", ("dev",), SECONDS
)
CPUS = Metric(Kind.GAUGE, "cpus", "CPUs of the machine.", (), "", "cpu")
SPOOL = Metric(
    Kind.INFO, "spool", "Conditions of the last minute.",
    ("dev", "fs", "options", "device", "kernel", "tool"),
)  # fmt: skip
FLUSHES = _counts("rollup_flushes", "flush", "Roll-ups that came, by what they were.", "outcome")
READABLE = Metric(Kind.GAUGE, "rollups_readable", "1 if the directory can be read, else 0.", ())

METRICS = (
    CALL_DURATION, WAIT_DURATION, CALL_TIME, CALLS_MET, FAILED, PROGRAM_CALLS, PROGRAM_TIME,
    COMMITS, COMMIT_TIME, COMMIT_LONGEST, DIRECTORY_WAITS, DIRECTORY_TIME, LOST, MISSING,
    COVERED, RECORDER_CPU, RECORDERS, CLOCK_STEPS, LAST_MINUTE, CPUS, SPOOL, FLUSHES, READABLE,
)  # fmt: skip
"""All of them, in the order in which they are shown."""

OTHER = "other"
"""Label of what has none of its own: programs beyond the bound, names that are not known."""
TIMER = "timer"
"""Program of the commits that no call asked for."""
CPU = "cpu"
BETWEEN = "programs"
"""Group of the waits of programs for programs, which the filesystem is not charged with."""

GROUP_OF = {
    name: BETWEEN if name in BETWEEN_PROGRAMS else cause.group
    for name, cause in CAUSES.items()
    if name != CPU
}
"""Group of each cause of waiting."""

READ, REFUSED, NEWER = OUTCOMES = ("read", "refused", "newer")
"""Outcomes of a flush: summed; damaged or half-written; of a newer version of the schema."""

_STEP = 1 << SUB_BITS - 1  # two bounds to a doubling
_FIRST = 8 << SUB_BITS  # the bucket that begins at 4.096 µs
_LAST = 31 << SUB_BITS  # and at 34.4 s
# A bound is the last ns of a bucket of the roll-ups, so that no count is a guess.
BOUNDS_NS: tuple[int, ...] = tuple(
    int(ns) - 1 for ns in lower_ns(np.arange(_FIRST, _LAST + 1, _STEP, dtype=np.int16))
)
"""Upper bounds of histograms, each included: two to a doubling from 4 µs to 34 s."""


def bound_of(bucket: int) -> int:
    """Return the index in BOUNDS_NS of the bound of a bucket of roll-ups; past the end: +Inf."""
    return min(max((bucket - _FIRST) // _STEP + 1, 0), len(BOUNDS_NS))


def family_of(call: str) -> str:
    """Return the family of a call."""
    known = CALLS.get(call)
    return known.family if known else OTHER
