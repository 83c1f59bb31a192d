"""The tables of a fleet in a directory or bucket: its day sums, or the roll-ups themselves."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from spoolscope.analysis.fleet.day_tables import DAY_TABLES, SOURCES, VERSION
from spoolscope.analysis.fleet.engines import Engine, Files
from spoolscope.traces.errors import SpoolscopeError
from spoolscope.traces.rollups import schema
from spoolscope.traces.rollups.coverage import Coverage, examine
from spoolscope.traces.rollups.files import Rollups
from spoolscope.traces.rollups.places import Place, place

DAYS_TOP = f"days={VERSION}"
MARKER = "days"
"""The table of day sums that is written last."""
_OF_FILES = ("damaged", "newer", "overlapping", "sums", "half-written", "rivals", "future")
"""Findings that the days of a host do not show by themselves."""
_TABLES = b"with runs"
"""Part of fingerprints, so that day sums of earlier versions are made again, which lack a table."""
_PATH_COLUMNS = pa.schema([("host", pa.string()), ("date", pa.string())])


@dataclass(frozen=True)
class Source:
    """The way by which a fleet is asked.

    Attributes:
        place: Where it is.
        tables: Expressions of the tables of day sums, by name.
        summed: True if day sums are read, False if the roll-ups themselves.
        problems: Sentences on files that are not read.
    """

    place: Place
    tables: Mapping[str, Any]
    summed: bool
    problems: Sequence[str] = field(default_factory=list)


def opened(where: str, engine: Engine) -> Source:
    """Open the day sums of a directory or bucket; without any, its roll-ups.

    Raises:
        SpoolscopeError: it has neither.
    """
    from spoolscope.analysis.fleet import expressions

    at = place(where)
    tops = names_in(at)
    if DAYS_TOP in tops:
        return _of_days(at, engine, stale=any(top.startswith("schema=") for top in tops))
    covered = examine(Rollups(where))
    minutes = of_rollups(engine, covered.sound)
    tables = {
        name: engine.kept(f"{name}_by_day", getattr(expressions, name)(minutes[SOURCES[name]]))
        for name in DAY_TABLES
    }
    return Source(at, tables, summed=False, problems=problems_of(covered))


def names_in(at: Place, below: str = "") -> list[str]:
    """Return the names of files and directories right in a path; none if it is not there.

    Raises:
        SpoolscopeError: the place cannot be read.
    """
    selector = fs.FileSelector(at.full(below), allow_not_found=True)
    try:
        return sorted(info.base_name for info in at.files.get_file_info(selector))
    except OSError as error:
        raise SpoolscopeError(
            f"{at.shown} cannot be read: {str(error).splitlines()[0]}",
            remedy="see that it exists and may be read",
        ) from error


def of_rollups(engine: Engine, rollups: Rollups) -> dict[str, Any]:
    """Return the tables of roll-ups."""
    at = rollups.place
    files = None if at.local else at.files
    return {
        name: engine.table(
            Files(
                name,
                pa.schema([*_PATH_COLUMNS, *spec.schema]),
                rollups.paths(name),
                at.url(""),
                files,
            )
        )
        for name, spec in schema.ROLLUPS.items()
    }


def problems_of(covered: Coverage) -> list[str]:
    """Return sentences on files of roll-ups that are left out, or are not what they should be."""
    return [
        f"{finding.sentence} The first: {finding.examples[0]}."
        for finding in covered.findings
        if finding.kind in _OF_FILES
    ]


@dataclass(frozen=True)
class DayFiles:
    """The day sums of one day.

    Attributes:
        date: The day, as YYYY-MM-DD.
        sources: Fingerprint of the roll-ups that they were made of.
        problems: Sentences on roll-ups that were left out.
    """

    date: str
    sources: str
    problems: Sequence[str]


def day_path(table: str, date: str) -> str:
    """Return the path of the file of one table and day."""
    return f"{DAYS_TOP}/{table}/date={date}/all.parquet"


def day_files(at: Place) -> dict[str, DayFiles]:
    """Return the days that have sums, by date: those whose last file is there."""
    found = {}
    for name in names_in(at, f"{DAYS_TOP}/{MARKER}"):
        date = name.removeprefix("date=")
        try:
            with at.files.open_input_file(at.full(day_path(MARKER, date))) as source:
                about = pq.ParquetFile(source).schema_arrow.metadata or {}
            facts = json.loads(about.get(b"spoolscope_days", b"{}"))
            found[date] = DayFiles(date, facts["sources"], facts["problems"])
        except (pa.ArrowException, OSError, KeyError, ValueError):
            continue
    return found


def _of_days(at: Place, engine: Engine, *, stale: bool) -> Source:
    days = day_files(at)
    if not days:
        raise SpoolscopeError(
            f"{at.shown} has no whole day sums", remedy=f"run 'spoolscope fleet days {at.shown}'"
        )
    files = None if at.local else at.files
    tables = {}
    for name, spec in DAY_TABLES.items():
        # Days that an earlier version summed, and whose roll-ups are gone, lack a newer table.
        there = {one.removeprefix("date=") for one in names_in(at, f"{DAYS_TOP}/{name}")}
        paths = [at.url(day_path(name, date)) for date in days if date in there]
        tables[name] = engine.table(Files(name, spec.schema, paths, filesystem=files))
    problems = [f"{day.date}: {problem}" for day in days.values() for problem in day.problems]
    if stale and (others := changed_days(at, days)):
        problems.append(
            f"{len(others):,} days have roll-ups that are not in their sums (the first: "
            f"{others[0]}): run 'spoolscope fleet days {at.shown}'."
        )
    return Source(at, tables, summed=True, problems=problems)


def changed_days(at: Place, days: Mapping[str, DayFiles]) -> list[str]:
    """Return the days whose roll-ups are others than those that were summed."""
    now = fingerprints(Rollups(at.shown))
    return [
        date for date, made_of in now.items() if date not in days or days[date].sources != made_of
    ]


def fingerprints(rollups: Rollups) -> dict[str, str]:
    """Return for each day a digest of the names and sizes of its roll-ups."""
    parts: dict[str, Any] = {}
    for flush, sizes in rollups.listing.counted.items():
        day = parts.setdefault(str(flush.day), hashlib.blake2b(_TABLES, digest_size=16))
        day.update(f"{flush} {sorted(sizes.items())}\n".encode())
    return {date: parts[date].hexdigest() for date in sorted(parts)}
