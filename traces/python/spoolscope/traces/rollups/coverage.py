"""Coverage of roll-ups: what is there, what is missing or damaged, and what that means."""

import time
from collections.abc import Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import date
from itertools import groupby

import pyarrow as pa

from spoolscope.traces.phases import Progress, unseen
from spoolscope.traces.rollups import schema
from spoolscope.traces.rollups.contract import unequal
from spoolscope.traces.rollups.files import Rollups, as_schema
from spoolscope.traces.rollups.minutes import COLUMNS, HostCoverage, coverage_of
from spoolscope.traces.rollups.names import MARKER, Flush, partition
from spoolscope.traces.rollups.places import Place
from spoolscope.traces.rollups.sealed import DamagedError, contents_of, decoded, minutes_of

THREADS = 8
NAMED = 3
"""Most examples of a finding."""


@dataclass(frozen=True)
class Finding:
    """One kind of trouble with roll-ups.

    Attributes:
        kind: Its short name.
        n: Number of things that have it.
        sentence: What was found, and what was done about it.
        examples: Some of the files or hosts that have it.
        n_named: Number of the files or hosts that have it.
        falsifies: True if numbers from these roll-ups lack something, or count it twice.
    """

    kind: str
    n: int
    sentence: str
    examples: tuple[str, ...]
    n_named: int
    falsifies: bool = True


@dataclass(frozen=True)
class Coverage:
    """The coverage of roll-ups, and what is wrong with them.

    Attributes:
        sound: The roll-ups without damaged flushes: numbers are to be made from these.
        hosts: Coverage of each host, by name.
        findings: Troubles, the ones that falsify numbers first.
    """

    sound: Rollups
    hosts: tuple[HostCoverage, ...]
    findings: tuple[Finding, ...]

    @property
    def complete(self) -> bool:
        """True if nothing was found that falsifies numbers."""
        return not any(finding.falsifies for finding in self.findings)


def examine(
    rollups: Rollups,
    *,
    deep: bool = False,
    now_s: float | None = None,
    progress: Progress = unseen,
) -> Coverage:
    """Return what roll-ups cover, after a check of their files.

    All files of ``minutes`` are read and checked, the others by size, or with ``deep`` by their
    digests and sums.

    Args:
        rollups: The roll-ups.
        deep: Read all files, and see that causes add up to the calls.
        now_s: The present time since the epoch; default: the clock's.
        progress: Called with the step and the share that is done.

    Raises:
        OSError: the place cannot be read.
    """
    damaged: dict[Flush, str] = dict(rollups.listing.damaged)
    false_sums: dict[Flush, int] = {}
    hosts = []
    done = 0
    for host, group in groupby(rollups.flushes, key=lambda flush: flush.host):
        flushes, minutes = list(group), []
        for flush, result in _checked(rollups, flushes, deep=deep):
            if isinstance(result, str):
                damaged[flush] = result
                continue
            rows, false_sums[flush] = result
            minutes.append(rows)
        done += len(flushes)
        progress("checking roll-ups", done / len(rollups.flushes))
        if minutes:
            now = time.time() if now_s is None else now_s
            hosts.append(coverage_of(host, pa.concat_tables(minutes), now))
    found = [
        *_of_files(rollups, damaged, {flush: n for flush, n in false_sums.items() if n}),
        *_of_minutes(hosts),
    ]
    findings = sorted(found, key=lambda finding: not finding.falsifies)
    return Coverage(rollups.without(damaged), tuple(hosts), tuple(findings))


def with_absent(covered: Coverage, hosts: Collection[str], since: date | None) -> Coverage:
    """Return coverage with a finding on hosts that should have a minute and have none.

    Args:
        covered: The coverage of chosen hosts and days.
        hosts: The hosts that were asked for; none: those that have days before ``since``.
        since: The first day that was asked for.

    Raises:
        OSError: the place cannot be read.
    """
    where, listing = covered.sound.place, covered.sound.listing
    there = {flush.host for flush in (*listing.counted, *listing.damaged)}
    first = "" if since is None else str(since)
    expected = hosts or (_parts(where, "", "host=") if since else [])
    named = []
    for host in sorted({*expected} - there):
        days = _parts(where, f"/host={host}", "date=")
        if before := [day for day in days if day < first]:
            named.append(f"{host}: its last day before is {before[-1]}")
        elif hosts:
            found = f"its first day is {days[0]}" if days else "it has no day"
            named.append(f"{host}: {found}")
    if not named and covered.hosts:
        return covered
    (finding,) = _found("absent", named) if named else _found("empty", [], 1)
    return replace(covered, findings=(finding, *covered.findings))


def _parts(where: Place, below: str, prefix: str) -> list[str]:
    """Return the values that directories right in a path of ``minutes`` have for a column."""
    versions = range(1, schema.VERSION + 1)
    paths = (partition(MARKER, version) + below for version in versions)
    names = {name for path in paths for name in where.names(path) if name.startswith(prefix)}
    return sorted(name.removeprefix(prefix) for name in names)


_Result = tuple[pa.Table, int] | str


def _checked(
    rollups: Rollups, flushes: list[Flush], *, deep: bool
) -> Iterator[tuple[Flush, _Result]]:
    """Yield COLUMNS of minutes and the number of false sums, or what is wrong with a flush."""
    shape = pa.schema([schema.ROLLUPS[MARKER].schema.field(name) for name in COLUMNS])

    def check(flush: Flush) -> _Result:
        try:
            minutes, seal = minutes_of(rollups.place, flush)
            seal.check_sizes(rollups.listing.counted[flush])
            false = 0
            if deep:
                others = contents_of(rollups.place, flush, seal)
                false = unequal(decoded(others["calls"]), minutes, seal.step_s)
        except DamagedError as error:
            return str(error)
        return as_schema(minutes, shape), false

    with ThreadPoolExecutor(THREADS) as pool:
        yield from zip(flushes, pool.map(check, flushes), strict=True)


_SENTENCES = {
    "damaged": "Damaged flushes: {n}; their rows are left out.",
    "newer": "Files of a newer spoolscope: {n}; their rows are left out.",
    "overlapping": "Flushes of which merged ones have some rows: {n}; they are left out.",
    "sums": "Flushes whose causes do not add up to their calls: {n}.",
    "half-written": "Files of no whole flush, by a crash or still being written: {n}; left out.",
    "lost": "Calls that are in no sum, as a table of the kernel was full: {n}.",
    "missing": "Minutes that were recorded, but are not there: {n}.",
    "twice": "Minutes covered twice, as the clock was set back or two recorders ran: {n}.",
    "rivals": "Minutes that two recorders have, perhaps of two machines with one host name: {n}.",
    "future": "Minutes that lie in the future, by a wrong clock: {n}.",
    "astray": "Minutes over a year before all others, by a wrong clock: {n}; not in the time.",
    "absent": "Hosts without a minute of these days: {n}.",
    "empty": "No minute of these hosts and days is there.",
    "clock": "Minutes in which the wall clock was set: {n}.",
    "merged": "Flushes that are in merged ones, too: {n}; they count once.",
    "foreign": "Files that are no roll-ups: {n}.",
}
_HARMLESS = {"clock", "merged", "foreign"}


def _of_files(
    rollups: Rollups, damaged: dict[Flush, str], false_sums: dict[Flush, int]
) -> Iterator[Finding]:
    listing = rollups.listing
    yield from _found(
        "damaged", [f"{flush.path(MARKER)}: {why}" for flush, why in sorted(damaged.items())]
    )
    newer = [f"schema={version}: {n}" for version, n in sorted(listing.newer.items())]
    yield from _found("newer", newer, sum(listing.newer.values()))
    yield from _found("overlapping", [flush.path(MARKER) for flush in listing.overlapping])
    yield from _found("sums", [flush.path("calls") for flush in false_sums])
    yield from _found("half-written", listing.halves)
    yield from _found("merged", [flush.path(MARKER) for flush in listing.merged_away])
    yield from _found("foreign", listing.foreign)


def _of_minutes(hosts: list[HostCoverage]) -> Iterator[Finding]:
    for kind, attribute in (
        ("lost", "lost"),
        ("missing", "missing"),
        ("twice", "twice"),
        ("rivals", "rivals"),
        ("future", "future"),
        ("astray", "astray"),
        ("clock", "clock_steps"),
    ):
        counts = {host.host: int(getattr(host, attribute)) for host in hosts}
        named = [f"{host}: {n:,}" for host, n in counts.items() if n]
        yield from _found(kind, named, sum(counts.values()))


def _found(kind: str, examples: list[str], n: int | None = None) -> Iterator[Finding]:
    n = len(examples) if n is None else n
    if n:
        sentence = _SENTENCES[kind].format(n=f"{n:,}")
        named = tuple(examples[:NAMED])
        yield Finding(kind, n, sentence, named, len(examples), kind not in _HARMLESS)
