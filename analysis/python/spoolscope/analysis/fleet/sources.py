"""The tables of a fleet in a directory or bucket: its day sums, or the roll-ups themselves."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from math import inf
from typing import Any

import pyarrow as pa
from pyarrow import fs

from spoolscope.analysis.fleet.day_files import (
    DAYS_TOP,
    DayFiles,
    Renewal,
    day_files,
    day_path,
    lacks_rows,
    problems_of,
    renewal,
)
from spoolscope.analysis.fleet.day_tables import DAY_TABLES, SOURCES
from spoolscope.analysis.fleet.engines import Engine, Files
from spoolscope.traces.errors import SpoolscopeError
from spoolscope.traces.rollups import schema
from spoolscope.traces.rollups.coverage import examine
from spoolscope.traces.rollups.files import Rollups
from spoolscope.traces.rollups.names import MARKER
from spoolscope.traces.rollups.places import Place, place
from spoolscope.traces.rollups.sealed import removed

MOST_BYTES = 200_000_000
"""Most bytes of roll-ups that are read beside day sums: these take some half a minute of a CPU."""
_PATH_COLUMNS = pa.schema([("host", pa.string()), ("date", pa.string())])


@dataclass(frozen=True)
class Source:
    """The way by which a fleet is asked.

    Attributes:
        place: Where it is.
        tables: Expressions of the tables of day sums, by name.
        summed: True if day sums are read, False if the roll-ups themselves.
        problems: Sentences on files that are not read.
        notes: Sentences on what no answer can have yet.
    """

    place: Place
    tables: Mapping[str, Any]
    summed: bool
    problems: Sequence[str] = field(default_factory=list)
    notes: Sequence[str] = field(default_factory=list)


def opened(where: str, engine: Engine) -> Source:
    """Open the day sums of a directory or bucket, and the roll-ups that are in none of them.

    Raises:
        SpoolscopeError: it has neither.
    """
    at = place(where)
    tops = names_in(at)
    if DAYS_TOP in tops:
        return _of_days(at, engine, beside=any(top.startswith("schema=") for top in tops))
    covered = examine(Rollups(where))
    tables = _summed(engine, covered.sound)
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


@contextmanager
def still_there(rollups: Rollups) -> Iterator[None]:
    """Name the file that was removed while an engine read roll-ups: each has errors of its own.

    Raises:
        SpoolscopeError: a file was removed.
    """
    try:
        yield
    except Exception as error:
        for flush in rollups.flushes:
            if rollups.place.written_s(flush.path(MARKER)) == inf:
                raise removed(rollups.place, flush) from error
        raise


def _summed(engine: Engine, rollups: Rollups) -> dict[str, Any]:
    """Sum roll-ups by day, and return the tables of day sums."""
    from spoolscope.analysis.fleet import expressions

    with still_there(rollups):
        minutes = of_rollups(engine, rollups)
        return {
            name: engine.kept(f"{name}_by_day", getattr(expressions, name)(minutes[SOURCES[name]]))
            for name in DAY_TABLES
        }


def _of_days(at: Place, engine: Engine, *, beside: bool) -> Source:
    days = day_files(at)
    if not days:
        raise SpoolscopeError(
            f"{at.shown} has no whole day sums", remedy=f"run 'spoolscope fleet days {at.shown}'"
        )
    changed = _changed(at, days) if beside else {}
    read = _read_beside(changed)
    again = {date: renewal(at, date, days.get(date), changed[date]) for date in read}
    tables = _of_files(at, engine, days)
    if again:
        tables = _with_changed(engine, tables, again)
    facts = [again[date].day if date in again else days[date] for date in sorted({*days, *again})]
    problems = [f"{day.date}: {problem}" for day in facts for problem in day.problems]
    more, notes = _not_read(at, sorted(changed.keys() - again.keys()))
    return Source(at, tables, summed=True, problems=problems + more, notes=notes)


def _of_files(at: Place, engine: Engine, days: Mapping[str, DayFiles]) -> dict[str, Any]:
    """Return the tables of the files of day sums."""
    files = None if at.local else at.files
    tables = {}
    for name, spec in DAY_TABLES.items():
        # Days that an earlier version summed, and whose roll-ups are gone, lack a newer table.
        there = {one.removeprefix("date=") for one in names_in(at, f"{DAYS_TOP}/{name}")}
        paths = [at.url(day_path(name, date)) for date in days if date in there]
        tables[name] = engine.table(Files(name, spec.schema, paths, filesystem=files))
    return tables


def _changed(at: Place, days: Mapping[str, DayFiles]) -> dict[str, Rollups]:
    """Return the roll-ups of the days that have rows which are in no sums, by date."""
    of_days = {str(day): own for day, own in Rollups(at.shown).by_day().items()}
    return {date: own for date, own in of_days.items() if lacks_rows(days.get(date), own)}


def _read_beside(changed: Mapping[str, Rollups]) -> list[str]:
    """Return the days that are small enough to be read beside the sums of others, in order."""
    sizes = {
        date: sum(sum(own.listing.counted[flush].values()) for flush in own.flushes)
        for date, own in changed.items()
    }
    read, n_bytes = [], 0
    for date in sorted(sizes, key=lambda date: sizes[date]):
        n_bytes += sizes[date]
        if n_bytes <= MOST_BYTES:
            read.append(date)
    return sorted(read)


def _not_read(at: Place, dates: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return problems and notes on days whose new roll-ups are not read."""
    remedy = f"run 'spoolscope fleet days {at.shown}'"
    today = str(datetime.now(UTC).date())
    over = [date for date in dates if date < today]
    problems = []
    if over:
        problems.append(
            f"{len(over):,} days have roll-ups that are not in their sums (the first: "
            f"{over[0]}): {remedy}."
        )
    notes = [
        f"Roll-ups of {date} are not in its sums yet: {remedy}." for date in dates[len(over) :]
    ]
    return problems, notes


def _with_changed(
    engine: Engine, tables: Mapping[str, Any], again: Mapping[str, Renewal]
) -> dict[str, Any]:
    """Put sums of the roll-ups of changed days in the place of the old ones of the same hosts."""
    rollups = next(iter(again.values())).rollups
    flushes = [flush for one in again.values() for flush in one.rollups.flushes]
    new = _summed(engine, rollups.only(flushes))
    found = {}
    for name, old in tables.items():
        stays = ~old.date.isin(list(again))
        for date, one in again.items():
            if one.kept:
                stays |= (old.date == date) & old.host.isin(sorted(one.kept))
        names = DAY_TABLES[name].schema.names
        found[name] = old.filter(stays).select(names).union(_cast(new[name], old, names))
    return found


def _cast(new: Any, old: Any, names: Sequence[str]) -> Any:
    """Return a table with the columns and types of another one."""
    types = old.schema()
    return new.select(*(new[name].cast(types[name]).name(name) for name in names))
