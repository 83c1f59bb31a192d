"""Sums of all roll-ups since the exporter began: the values of its metrics."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from spoolscope.analysis.causes import CAUSES
from spoolscope.exporter import catalogue as of
from spoolscope.exporter.catalogue import Kind, Metric
from spoolscope.traces.calls import FAMILIES
from spoolscope.traces.rollups.minutes import STEP_NS
from spoolscope.traces.rollups.names import MINUTE_S
from spoolscope.traces.rollups.schema import CALL

MOST_DEVS = 8
MOST_RECORDERS = 8
UNKNOWN = 0
"""Device of calls whose spool is not known."""

Key = tuple[str, ...]
Row = Mapping[str, Any]


class Slots:
    """A bound on the values of a label: the first names keep theirs, later ones are ``other``.

    A name never loses its place, as the counters of both labels would go wrong.

    Args:
        most: Number of names.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._names: set[str] = set()

    def label(self, name: str) -> str:
        """Return the label of a name, which takes a free place if it has none."""
        if name not in self._names:
            if len(self._names) >= self._most:
                return of.OTHER
            self._names.add(name)
        return name


class MinuteSums:
    """Values of all metrics.

    Attributes:
        numbers: Values of counters, gauges and facts by metric and labels; times in ns.
        buckets: Numbers of calls by histogram, labels and index of the bound.
        totals: Sums in ns by histogram and labels.
    """

    def __init__(self, most_programs: int) -> None:
        """Begin at zero.

        Args:
            most_programs: Number of programs with a label of their own.
        """
        self.numbers: dict[Metric, Counter[Key]] = {m: Counter() for m in of.METRICS}
        self.buckets: dict[Metric, Counter[tuple[Key, int]]] = {}
        self.totals: dict[Metric, Counter[Key]] = {}
        for metric in of.METRICS:
            if metric.kind is Kind.HISTOGRAM:
                self.buckets[metric], self.totals[metric] = Counter(), Counter()
        self.numbers[of.READABLE][()] = 1
        for outcome in of.OUTCOMES:
            self.numbers[of.FLUSHES][(outcome,)] = 0
        for metric in of.METRICS:
            if metric.kind is Kind.COUNTER and not metric.labels:
                self.numbers[metric][()] = 0
        self._programs, self._devs = Slots(most_programs), Slots(MOST_DEVS)
        self._known: set[str] = set()
        self._seqs: dict[str, int] = {}

    def forget(self) -> None:
        """Set all counters to zero; their labels stay, so that the next minute is an increase."""
        for metric, values in self.numbers.items():
            if metric.kind is Kind.COUNTER:
                self.numbers[metric] = Counter(dict.fromkeys(values, 0))
        for metric in self.buckets:
            self.buckets[metric] = Counter(dict.fromkeys(self.buckets[metric], 0))
            self.totals[metric] = Counter(dict.fromkeys(self.totals[metric], 0))

    def add(self, tables: Mapping[str, pa.Table]) -> None:
        """Add the rows of a flush, or of several.

        Args:
            tables: The tables of the roll-ups by name.
        """
        minutes = _in_order(tables["minutes"])
        for row in minutes:
            self._add_minute(row)
        self._drop_gone(minutes)
        calls = tables["calls"]
        whole = pc.equal(calls["cause"], CALL)
        self._add_calls(calls.filter(whole))
        self._add_causes(calls.filter(pc.invert(whole)))
        self._add_commits(tables["commits"])
        self._measure_longest(minutes, tables["commits"])
        for dev, n, ns in _summed(tables["directories"], ["dev"]):
            self._count(of.DIRECTORY_WAITS, n, self._dev(dev))
            self._count(of.DIRECTORY_TIME, ns, self._dev(dev))

    def _add_minute(self, row: Row) -> None:
        """Add what was seen of one spool in a minute, or of calls whose spool is not known."""
        self._add_recorder(row)
        self._count(of.LOST, row["lost"])
        self._count(of.RECORDER_CPU, row["recorder_ns"])
        dev = self._dev(row["dev"])
        if row["dev"] == UNKNOWN:
            return
        self._count(of.COVERED, row["covered_ns"], dev)
        self.numbers[of.LAST_MINUTE][(dev,)] = (row["minute_s"] + MINUTE_S) * 10**9
        facts = self.numbers[of.SPOOL]
        for key in [key for key in facts if key[0] == dev]:
            del facts[key]
        facts[(dev, *(str(row[name]) for name in of.SPOOL.labels[1:]))] = 1

    def _drop_gone(self, minutes: Sequence[Row]) -> None:
        """Drop the gauges of spools that the last minute has no row of: they are not recorded.

        A recorder has a row of each of its spools in every minute. Counters stay, and stand still.
        """
        if not minutes:
            return
        last = minutes[-1]["recorder_id"], minutes[-1]["seq"]
        there = {
            self._dev(row["dev"]) for row in minutes if (row["recorder_id"], row["seq"]) == last
        }
        for metric in (of.LAST_MINUTE, of.COMMIT_LONGEST, of.SPOOL):
            values = self.numbers[metric]
            for key in [key for key in values if key[0] not in there]:
                del values[key]

    def _add_recorder(self, row: Row) -> None:
        """Add what was seen of the recorder, which each of its spools has a row of."""
        recorder, seq = row["recorder_id"], row["seq"]
        before = self._seqs.get(recorder)
        if before is None:
            self._count(of.RECORDERS, 1)
        elif seq <= before:
            return
        else:
            self._count(of.MISSING, seq - before - 1)
        # Only the last few recorders may still write.
        self._seqs = dict(list(self._seqs.items())[-MOST_RECORDERS:])
        self._seqs[recorder] = seq
        self._count(of.CLOCK_STEPS, int(abs(row["clock_step_ns"]) >= STEP_NS))
        self.numbers[of.CPUS][()] = row["cpus"]

    def _add_calls(self, calls: pa.Table) -> None:
        for dev, call, bucket, n, ns in _summed(calls, ["dev", "syscall", "bucket"]):
            self._measure(of.CALL_DURATION, bucket, n, ns, self._dev(dev), of.family_of(call))
        failed = calls.filter(pc.equal(calls["failed"], 1))
        for dev, call, n, _ in _summed(failed, ["dev", "syscall"]):
            self._count(of.FAILED, n, self._dev(dev), of.family_of(call))
        for dev, comm, n, ns in _summed(calls, ["dev", "comm"]):
            program = self._programs.label(comm)
            self._count(of.PROGRAM_CALLS, n, self._dev(dev), program)
            self._count(of.PROGRAM_TIME, ns, self._dev(dev), program)

    def _add_causes(self, parts: pa.Table) -> None:
        for dev, cause, n, ns in _summed(parts, ["dev", "cause"]):
            name = cause if cause in CAUSES else of.OTHER
            self._count(of.CALLS_MET, n, self._dev(dev), name)
            self._count(of.CALL_TIME, ns, self._dev(dev), name)
        waits = parts.filter(pc.not_equal(parts["cause"], of.CPU))
        for dev, cause, bucket, n, ns in _summed(waits, ["dev", "cause", "bucket"]):
            group = of.GROUP_OF.get(cause, of.OTHER)
            self._measure(of.WAIT_DURATION, bucket, n, ns, self._dev(dev), group)

    def _add_commits(self, commits: pa.Table) -> None:
        for dev, comm, n, ns in _summed(commits, ["dev", "comm"]):
            program = self._programs.label(comm) if comm else of.TIMER
            self._count(of.COMMITS, n, self._dev(dev), program)
            self._count(of.COMMIT_TIME, ns, self._dev(dev), program)

    def _measure_longest(self, minutes: Sequence[Row], commits: pa.Table) -> None:
        """Set the longest commit of the last minute of each spool that is still recorded."""
        grouped = commits.group_by(["dev", "minute_s"]).aggregate([("max_ns", "max")]).to_pylist()
        longest_ns = {(row["dev"], row["minute_s"]): row["max_ns_max"] for row in grouped}
        last_s = {row["dev"]: row["minute_s"] for row in minutes}
        found: dict[Key, int] = {}
        for dev, minute_s in last_s.items():
            key = (self._dev(dev),)
            found[key] = max(found.get(key, 0), longest_ns.get((dev, minute_s), 0))
        for label, ns in found.items():
            if label in self.numbers[of.LAST_MINUTE]:
                self.numbers[of.COMMIT_LONGEST][label] = ns

    def _dev(self, number: int) -> str:
        """Return the label of a device; all series of a new one begin at zero."""
        dev = self._devs.label(device(number))
        if dev not in self._known:
            self._known.add(dev)
            self._begin(dev)
        return dev

    def _begin(self, dev: str) -> None:
        for metric in of.METRICS:
            of_known = metric is not of.COVERED or dev != device(UNKNOWN)
            if metric.kind is Kind.COUNTER and metric.labels == ("dev",) and of_known:
                self._count(metric, 0, dev)
        for cause in CAUSES:
            self._count(of.CALL_TIME, 0, dev, cause)
            self._count(of.CALLS_MET, 0, dev, cause)
        for family in FAMILIES:
            self._count(of.FAILED, 0, dev, family)
            self._measure(of.CALL_DURATION, 0, 0, 0, dev, family)
        for group in dict.fromkeys(of.GROUP_OF.values()):
            self._measure(of.WAIT_DURATION, 0, 0, 0, dev, group)
        for metric in (of.COMMITS, of.COMMIT_TIME):
            self._count(metric, 0, dev, of.TIMER)

    def _count(self, metric: Metric, number: int, *labels: str) -> None:
        self.numbers[metric][labels] += number

    def _measure(self, metric: Metric, bucket: int, n: int, ns: int, *labels: str) -> None:
        self.buckets[metric][labels, of.bound_of(bucket)] += n
        self.totals[metric][labels] += ns


def _in_order(minutes: pa.Table) -> list[Row]:
    """Return the rows of one recorder after the other, each by its numbers: a clock can go back."""
    rows = minutes.sort_by([("seq", "ascending")]).to_pylist()
    last_s = {row["recorder_id"]: row["minute_s"] for row in rows}
    return sorted(rows, key=lambda row: (last_s[row["recorder_id"]], row["recorder_id"]))


def device(number: int) -> str:
    """Return a device as mountinfo has it."""
    return f"{number >> 20}:{number & 0xFFFFF}"


def _summed(table: pa.Table, keys: Sequence[str]) -> list[tuple[Any, ...]]:
    """Return keys, n and sum_ns of rows that have equal keys, the longest time first."""
    # A minute has few rows: threads would cost more than they save.
    grouped = table.group_by(list(keys), use_threads=False).aggregate(
        [("n", "sum"), ("sum_ns", "sum")]
    )
    rows = grouped.sort_by([("sum_ns_sum", "descending")])
    columns = [rows[name].to_pylist() for name in (*keys, "n_sum", "sum_ns_sum")]
    return list(zip(*columns, strict=True))
