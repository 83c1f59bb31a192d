"""The files of day sums, the flushes that each day has in them, and the roll-ups that it lacks.

Hosts are apart in all tables of day sums, so that a day can be made again for some hosts alone: a
host whose roll-ups were removed meanwhile, as ``prune`` does it, keeps what it has.
"""

import hashlib
import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from spoolscope.analysis.fleet.day_tables import DAY_TABLES, VERSION
from spoolscope.traces.rollups.coverage import THREADS, Coverage, examine
from spoolscope.traces.rollups.files import Rollups
from spoolscope.traces.rollups.names import MARKER as MINUTES
from spoolscope.traces.rollups.names import Flush
from spoolscope.traces.rollups.places import Place
from spoolscope.traces.rollups.sealed import DamagedError, minutes_of

DAYS_TOP = f"days={VERSION}"
MARKER = "days"
"""The table of day sums that is written last."""

_TABLES = "with runs and flushes"
"""Contents of day sums: those of earlier versions, which lack a table or the names of their
flushes, are made again."""
_OF_FILES = (
    "damaged",
    "newer",
    "overlapping",
    "sums",
    "half-written",
    "twice",
    "rivals",
    "future",
)
"""Findings that the days of a host do not show by themselves."""
_UNKNOWN = "?"
"""Stands for flushes whose names an earlier version did not keep: no flush has this name."""

Packed = Sequence[Any]
"""Names of flushes: those of a recorder in a row are one [recorder, first number, step, n]."""


@dataclass(frozen=True)
class DayFiles:
    """The day sums of one day.

    Attributes:
        date: The day, as YYYY-MM-DD.
        sources: Fingerprint of the roll-ups that there were when they were made.
        problems: Sentences on roll-ups that were left out.
        recorded: By host the names of the flushes that are in them, as recorders wrote these; None
            in those of earlier versions.
        tables: ``_TABLES`` when they were made.
    """

    date: str
    sources: str = ""
    problems: Sequence[str] = ()
    recorded: Mapping[str, Packed] | None = None
    tables: str = ""

    def text(self) -> str:
        """Return what the footer of its files has."""
        return json.dumps({name: value for name, value in vars(self).items() if name != "date"})


def day_path(table: str, date: str) -> str:
    """Return the path of the file of one table and day."""
    return f"{DAYS_TOP}/{table}/date={date}/all.parquet"


def day_files(at: Place) -> dict[str, DayFiles]:
    """Return the days that have sums, by date: those whose last file is there."""
    found = {}
    for name in at.names(f"{DAYS_TOP}/{MARKER}"):
        date = name.removeprefix("date=")
        try:
            with at.files.open_input_file(at.full(day_path(MARKER, date))) as source:
                about = pq.ParquetFile(source).schema_arrow.metadata or {}
            facts = json.loads(about.get(b"spoolscope_days", b"{}"))
            later = facts.get("recorded"), facts.get("tables", "")
            found[date] = DayFiles(date, facts["sources"], facts["problems"], *later)
        except (pa.ArrowException, OSError, KeyError, ValueError):
            continue
    return found


def day_rows(at: Place, table: str, date: str, hosts: Collection[str] | None = None) -> pa.Table:
    """Return the rows of one table and day, of all hosts or some; earlier versions lack tables."""
    schema = DAY_TABLES[table].schema
    try:
        with at.files.open_input_file(at.full(day_path(table, date))) as source:
            rows = pq.read_table(source).select(schema.names).cast(schema)
    except FileNotFoundError:
        return schema.empty_table()
    if hosts is None:
        return rows
    return rows.filter(pc.is_in(rows["host"], pa.array(sorted(hosts), pa.string())))


def fingerprint(rollups: Rollups) -> str:
    """Return a digest of the names and sizes of the roll-ups of a day."""
    found = hashlib.blake2b(digest_size=16)
    for flush in rollups.flushes:
        sizes = sorted(rollups.listing.counted[flush].items())
        found.update(f"{flush} {sizes}\n".encode())
    return found.hexdigest()


def lacks_rows(day: DayFiles | None, rollups: Rollups) -> bool:
    """Return True if roll-ups of a day have rows that are not in its sums.

    Other files may have the same rows: ``compact`` has merged them. Roll-ups that were removed
    leave their rows in the sums.
    """
    if day is None or day.recorded is None or day.tables != _TABLES:
        return True
    if day.sources == fingerprint(rollups):
        return False
    there = recorded(rollups)
    return any(names - unpacked(day.recorded.get(host, ())) for host, names in there.items())


@dataclass(frozen=True)
class Renewal:
    """The roll-ups of which the sums of a day are to be made again, and what stays of the old.

    Attributes:
        rollups: Those of the hosts that are made again.
        kept: Hosts whose old rows stay, as roll-ups of theirs are gone.
        day: The facts of the new sums.
    """

    rollups: Rollups
    kept: frozenset[str]
    day: DayFiles


def renewal(
    at: Place, date: str, old: DayFiles | None, rollups: Rollups, *, deep: bool = False
) -> Renewal:
    """Check the roll-ups of a day, and return how its sums are made again.

    Args:
        at: Where the day sums are.
        date: The day.
        old: Its sums up to now, if it has any.
        rollups: Its roll-ups.
        deep: Read all files of these.
    """
    covered = examine(rollups, deep=deep)
    there = recorded(covered.sound)
    before = {} if old is None else _before(at, old, covered)
    kept = {
        host: names
        for host, names in before.items()
        if not unpacked(names) <= there.get(host, frozenset())
    }
    late = [
        flush
        for flush in covered.sound.flushes
        if flush.host in kept and _names(covered.sound, flush) - unpacked(kept[flush.host])
    ]
    problems = problems_of(covered)
    if late:
        problems.append(
            f"Flushes that came after others of their host and day were removed: {len(late):,}; "
            f"they are not in its sums. The first: {late[0].path(MINUTES)}."
        )
    if old is not None and kept:
        problems += [problem for problem in old.problems if problem not in problems]
    fresh = [flush for flush in covered.sound.flushes if flush.host not in kept]
    names = {host: packed(own) for host, own in there.items() if host not in kept} | kept
    day = DayFiles(date, fingerprint(rollups), problems, names, _TABLES)
    return Renewal(covered.sound.only(fresh), frozenset(kept), day)


def _before(at: Place, old: DayFiles, covered: Coverage) -> Mapping[str, Packed]:
    """Return the names of the flushes in old sums, by host.

    Of an earlier version only the calls are known: where roll-ups have fewer, some are gone.
    """
    if old.recorded is not None:
        return old.recorded
    now = {host.host: host.calls for host in covered.hosts}
    rows = day_rows(at, MARKER, old.date).group_by("host").aggregate([("calls", "sum")])
    calls = dict(zip(rows["host"].to_pylist(), rows["calls_sum"].to_pylist(), strict=True))
    return {host: [_UNKNOWN] for host, n in calls.items() if n > now.get(host, 0)}


def problems_of(covered: Coverage) -> list[str]:
    """Return sentences on files of roll-ups that are left out, or are not what they should be."""
    return [
        f"{finding.sentence} The first: {finding.examples[0]}."
        for finding in covered.findings
        if finding.kind in _OF_FILES
    ]


def recorded(rollups: Rollups) -> dict[str, frozenset[str]]:
    """Return the names of the recorders' flushes whose rows roll-ups have, by host."""
    found: dict[str, set[str]] = {}
    with ThreadPoolExecutor(THREADS) as pool:
        names = pool.map(lambda flush: _names(rollups, flush), rollups.flushes)
        for flush, own in zip(rollups.flushes, names, strict=True):
            found.setdefault(flush.host, set()).update(own)
    return {host: frozenset(own) for host, own in found.items()}


def _names(rollups: Rollups, flush: Flush) -> frozenset[str]:
    """Return the names of the recorders' flushes whose rows a flush has; none if it is damaged."""
    if not flush.merged:
        return frozenset([flush.name])
    try:
        return minutes_of(rollups.place, flush)[1].recorded
    except DamagedError:
        return frozenset()


def packed(names: Iterable[str]) -> list[Any]:
    """Return names in a form that is short where a recorder wrote one flush after the other."""
    found: list[Any] = []
    runs: dict[str, list[int]] = {}
    for name in sorted(names):
        recorder, _, number = name.rpartition("-")
        if recorder and len(number) == 8 and number.isdecimal():
            runs.setdefault(recorder, []).append(int(number))
        else:
            found.append(name)
    return found + [[run, *part] for run, numbers in runs.items() for part in _steps(numbers)]


def _steps(numbers: Sequence[int]) -> Iterator[tuple[int, int, int]]:
    """Yield (first, step, n) of numbers in rising order."""
    at = 0
    while at < len(numbers):
        step = numbers[at + 1] - numbers[at] if at + 1 < len(numbers) else 1
        n = 1
        while at + n < len(numbers) and numbers[at + n] - numbers[at + n - 1] == step:
            n += 1
        yield numbers[at], step, n
        at += n


def unpacked(names: Packed) -> frozenset[str]:
    """Return the names that ``packed`` has shortened."""
    found = set[str]()
    for own in names:
        if isinstance(own, str):
            found.add(own)
        else:
            run, first, step, n = own
            found.update(f"{run}-{first + k * step:08d}" for k in range(n))
    return frozenset(found)
