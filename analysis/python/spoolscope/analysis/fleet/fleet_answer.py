"""The answer about a fleet: asks every question once, and arranges what came back."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from spoolscope.analysis.causes import CAUSES, charged
from spoolscope.analysis.fleet import expressions
from spoolscope.analysis.fleet.change import Effect, Split, effects, split
from spoolscope.analysis.fleet.drill import Suspect, suspects
from spoolscope.analysis.fleet.engines import Engine
from spoolscope.analysis.fleet.measures import DAY_NS, Fleet, measured
from spoolscope.analysis.fleet.outliers import Tested, tested
from spoolscope.analysis.fleet.sources import Source
from spoolscope.traces.phases import Progress, unseen
from spoolscope.traces.rollups.buckets import bucket_of, lower_ns, width_ns

QUANTILES = (500, 990)
"""Shown quantiles, in thousandths."""
LEAST_FOR = {500: 20, 990: 1000}
"""Fewest calls for each."""
SLOW_NS = 100_000_000
"""Length from which a call that syncs is counted as slow; the edge of its bucket is shown."""
SHOWN_PROGRAMS = 20


@dataclass(frozen=True)
class Quantile:
    """A quantile of durations as the two ends of its bucket, in ns.

    The true value, of all calls, lies between them: that is the error, and there is no other.
    """

    lower_ns: int
    upper_ns: int


@dataclass(frozen=True)
class Latency:
    """Durations of one kind of call on one type of filesystem."""

    fs: str
    syscall: str
    n: int
    quantiles: Mapping[int, Quantile | None]


@dataclass(frozen=True)
class Filesystem:
    """One type of filesystem: hosts, and the time of its calls by cause."""

    fs: str
    hosts: int
    causes: Mapping[str, int]


@dataclass(frozen=True)
class Program:
    """One program: hosts, calls, their time by cause, and the commits that it asked for."""

    comm: str
    hosts: int
    calls: int
    causes: Mapping[str, int]
    commits: int
    commits_ns: int


@dataclass(frozen=True)
class Host:
    """The share of one host, and how its calls that sync were.

    Attributes:
        host: Its name.
        days: Days with at least one minute.
        covered: Part of all days of the fleet's span for which its recorders were on.
        holes: Minutes that were recorded and are missing.
        twice: Minutes that are there more than once.
        steps: Minutes in which its clock was set.
        calls: Calls in the sums; lost are those in no row.
        recorder_share: CPU time of the recorder by that of one CPU.
        sync_n: Calls that sync; slow of them took ``SLOW_NS`` or longer.
        median: Of the calls that sync; None with too few.
        p99: Likewise.
    """

    host: str
    days: int
    covered: float
    holes: int
    twice: int
    steps: int
    calls: int
    lost: int
    recorder_share: float
    sync_n: int
    slow: int
    median: Quantile | None
    p99: Quantile | None


@dataclass(frozen=True)
class Answer:
    """Everything that a report about a fleet shows.

    Attributes:
        shown: The directory or bucket as it was named.
        engine: What computed it.
        summed: True if day sums were read.
        problems: Sentences on files that were not read.
        notes: Sentences on what no answer can have yet.
        fleet: The measures of all spools and days.
        hosts: Every host, by name.
        filesystems: Types of filesystems, the most time first.
        programs: Programs, the most time first, at most twenty.
        latencies: Durations of calls by filesystem, the most frequent first.
        directories: The costliest directories: host, directory, n, sum_ns.
        slow_ns: The edge from which on a call that syncs is slow.
        tested: Spools against their peers.
        suspects: For each named one, where to look.
        split: Which spools changed; None if no change was asked for.
        effects: What the change did.
    """

    shown: str
    engine: str
    summed: bool
    problems: Sequence[str]
    notes: Sequence[str]
    fleet: Fleet
    hosts: Sequence[Host]
    filesystems: Sequence[Filesystem]
    programs: Sequence[Program]
    latencies: Sequence[Latency]
    directories: Sequence[Mapping[str, Any]]
    slow_ns: int
    tested: Tested
    suspects: Sequence[Suspect]
    split: Split | None
    effects: Sequence[Effect]

    @property
    def lost(self) -> int:
        """Calls that are in no row."""
        return sum(host.lost for host in self.hosts)

    @property
    def calls(self) -> int:
        """Calls that are in the sums."""
        return sum(host.calls for host in self.hosts)

    @property
    def spool_days(self) -> tuple[int, int, int]:
        """Days of spools in the span, those that are there, and those that count."""
        seen = int(self.fleet.seen.sum())
        return self.fleet.seen.size, seen, int(self.fleet.counted.sum())


def asked(
    source: Source,
    engine: Engine,
    before_after: str | None = None,
    progress: Progress = unseen,
) -> Answer:
    """Ask a fleet everything.

    Args:
        source: Its tables.
        engine: What computes them.
        before_after: "kernel", "options" or a date; None: no comparison in time.
        progress: Called with what is asked and the share that is done.
    """
    slow = int(bucket_of(np.array([SLOW_NS]))[0]) + 1
    rows = _results(source.tables, engine, slow, progress)
    fleet = measured(rows["conditions"], rows["causes_by_day"], rows["syscalls_by_day"])
    found = tested(fleet)
    divided = split(fleet, before_after) if before_after else None
    return Answer(
        shown=source.place.shown,
        engine=engine.name,
        summed=source.summed,
        problems=source.problems,
        notes=source.notes,
        fleet=fleet,
        hosts=_hosts(rows, len(fleet.dates)),
        filesystems=_filesystems(rows["causes"]),
        programs=_programs(rows),
        latencies=_latencies(rows),
        directories=rows["costliest"].to_pylist(),
        slow_ns=int(lower_ns(np.array([slow], np.int16))[0]),
        tested=found,
        suspects=suspects(source.place, fleet, found.named, rows["causes_by_day"]),
        split=divided,
        effects=effects(fleet, divided) if divided else [],
    )


def questions(tables: Mapping[str, Any], engine: Engine, slow: int) -> dict[str, Any]:
    """Return the expressions of a report by name; ``slow`` is the bucket of slow calls."""
    sums, days = tables["sums"], tables["days"]
    durations = engine.kept("durations", expressions.durations(tables["spread"], days))
    asked = {
        "conditions": expressions.conditions(days),
        "coverage": expressions.coverage(days, tables["runs"]),
        "causes_by_day": expressions.causes_by_day(sums),
        "syscalls_by_day": expressions.syscalls_by_day(sums),
        "causes": expressions.causes(sums, days),
        "programs": expressions.programs(sums),
        "callers": expressions.callers(sums),
        "committers": expressions.committers(tables["journal"]),
        "costliest": expressions.costliest(tables["places"]),
        "slow_syncs": expressions.slow_syncs(durations, slow),
    }
    for q in QUANTILES:
        asked[f"calls_{q}"] = expressions.quantiles_of_calls(durations, q)
        asked[f"hosts_{q}"] = expressions.quantiles_of_hosts(durations, q)
    return asked


def _results(
    tables: Mapping[str, Any], engine: Engine, slow: int, progress: Progress
) -> dict[str, pa.Table]:
    progress("Summing durations", 0.0)
    wanted = questions(tables, engine, slow)
    results = {}
    for number, (name, expression) in enumerate(wanted.items()):
        progress(f"Asking for {name.replace('_', ' ')}", number / len(wanted))
        results[name] = engine.rows(expression)
    return results


def _hosts(rows: Mapping[str, pa.Table], n_days: int) -> list[Host]:
    syncs = {row["host"]: row for row in rows["slow_syncs"].to_pylist()}
    at = {q: {row["host"]: row for row in rows[f"hosts_{q}"].to_pylist()} for q in QUANTILES}
    hosts = []
    for row in rows["coverage"].to_pylist():
        name = row["host"]
        own = syncs.get(name, {"n": 0, "slow": 0})
        quantiles = [_quantile(at[q].get(name), LEAST_FOR[q]) for q in QUANTILES]
        hosts.append(
            Host(
                host=name,
                days=row["days"],
                covered=row["covered_ns"] / max(n_days * DAY_NS, 1),
                **{key: row[key] for key in ("holes", "twice", "steps", "calls", "lost")},
                recorder_share=row["recorder_ns"] / max(row["covered_ns"], 1),
                sync_n=own["n"],
                slow=own["slow"],
                median=quantiles[0],
                p99=quantiles[1],
            )
        )
    return hosts


def _quantile(row: Mapping[str, Any] | None, least: int) -> Quantile | None:
    """Return the ends of the bucket of a row; None if it has too few calls."""
    if row is None or row["n"] < least:
        return None
    bucket = np.array([row["bucket"]], np.int16)
    lower = int(lower_ns(bucket)[0])
    return Quantile(lower, lower + int(width_ns(bucket)[0]))


def _filesystems(causes: pa.Table) -> list[Filesystem]:
    by_fs: dict[str, dict[str, int]] = {}
    hosts: dict[str, int] = {}
    for row in causes.to_pylist():
        by_fs.setdefault(row["fs"], {})[row["cause"]] = row["sum_ns"]
        hosts[row["fs"]] = max(hosts.get(row["fs"], 0), row["hosts"])
    found = [Filesystem(fs, hosts[fs], in_order(own)) for fs, own in by_fs.items()]
    return sorted(found, key=lambda one: (-sum(charged(one.causes).values()), one.fs))


def in_order(causes: Mapping[str, int]) -> dict[str, int]:
    """Return times in the order of the list of causes; what it does not have is unexplained."""
    known = {cause: causes[cause] for cause in CAUSES if cause in causes}
    rest = sum(ns for cause, ns in causes.items() if cause not in CAUSES)
    if rest:
        known["unexplained"] = known.get("unexplained", 0) + rest
    return known


def _programs(rows: Mapping[str, pa.Table]) -> list[Program]:
    causes: dict[str, dict[str, int]] = {}
    for row in rows["programs"].to_pylist():
        causes.setdefault(row["comm"], {})[row["cause"]] = row["sum_ns"]
    commits = {row["comm"]: row for row in rows["committers"].to_pylist()}
    found = []
    for row in rows["callers"].to_pylist():
        comm = row["comm"]
        own = commits.get(comm, {"n": 0, "sum_ns": 0})
        parts = in_order(causes.get(comm, {}))
        program = Program(comm, row["hosts"], row["n"], parts, own["n"], own["sum_ns"])
        found.append(program)
    return sorted(found, key=lambda one: (-sum(one.causes.values()), one.comm))[:SHOWN_PROGRAMS]


def _latencies(rows: Mapping[str, pa.Table]) -> list[Latency]:
    kinds: dict[tuple[str, str], dict[int, Quantile | None]] = {}
    counts: dict[tuple[str, str], int] = {}
    for q in QUANTILES:
        for row in rows[f"calls_{q}"].to_pylist():
            key = row["fs"], row["syscall"]
            kinds.setdefault(key, {})[q] = _quantile(row, LEAST_FOR[q])
            counts[key] = row["n"]
    found = [Latency(fs, call, counts[fs, call], own) for (fs, call), own in kinds.items()]
    return sorted(found, key=lambda one: (one.fs, -one.n, one.syscall))


def total(causes: Mapping[str, int], of: Iterable[str] | None = None) -> int:
    """Return the time of causes that is charged, of all or of some."""
    own = charged(causes)
    return int(sum(own[cause] for cause in (own if of is None else of) if cause in own))
