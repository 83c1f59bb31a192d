"""Writer of day sums: what ``spoolscope fleet days`` keeps beside the roll-ups.

Roll-ups are by the minute; of three hundred hosts and a month they are hundreds of times what a
report needs. A day is summed once, and again for the hosts that have new roll-ups of it.
"""

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from spoolscope.analysis.fleet import expressions
from spoolscope.analysis.fleet.day_files import (
    MARKER,
    DayFiles,
    Renewal,
    day_files,
    day_path,
    day_rows,
    fingerprint,
    lacks_rows,
    renewal,
)
from spoolscope.analysis.fleet.day_tables import DAY_TABLES, SOURCES
from spoolscope.analysis.fleet.engines import Engine
from spoolscope.analysis.fleet.sources import of_rollups, still_there
from spoolscope.traces.phases import Progress, unseen
from spoolscope.traces.rollups.files import Rollups
from spoolscope.traces.rollups.places import Place, place

_OPTIONS = {"compression": "zstd", "compression_level": 3, "use_dictionary": True}


@dataclass(frozen=True)
class Summed:
    """The result of summing days.

    Attributes:
        dates: The days that were written.
        kept: Days that were there and had not changed.
        bytes: Size of the written files.
        problems: Sentences on roll-ups that were left out.
    """

    dates: Sequence[str]
    kept: int
    bytes: int
    problems: Sequence[str]


def sum_days(where: str, engine: Engine, progress: Progress = unseen) -> Summed:
    """Sum the days that have new roll-ups, and write them into the same directory.

    Args:
        where: Directory or bucket of roll-ups.
        engine: What sums.
        progress: Called with the day and the share of the days that are done.

    Raises:
        SpoolscopeError: there are no roll-ups, or they cannot be read.
    """
    at = place(where)
    of_days = {str(day): own for day, own in Rollups(where).by_day().items()}
    there = day_files(at)
    wanted = [date for date, own in of_days.items() if lacks_rows(there.get(date), own)]
    written = 0
    problems: list[str] = []
    for number, date in enumerate(wanted):
        progress(f"Summing {date}", number / len(wanted))
        again = renewal(at, date, there.get(date), of_days[date], deep=True)
        with still_there(again.rollups):
            minutes = of_rollups(engine, again.rollups)
            written += sum(_write(at, engine, minutes, again))
        problems += [f"{date}: {one}" for one in again.day.problems]
    for date in of_days.keys() - {*wanted}:
        _note_files(at, there[date], fingerprint(of_days[date]))
    return Summed(wanted, len(of_days) - len(wanted), written, problems)


def _write(at: Place, engine: Engine, minutes: Mapping[str, Any], again: Renewal) -> list[int]:
    """Write all tables of a day, and return their sizes in bytes."""
    date, facts = again.day.date, again.day.text()
    sizes = []
    for name in sorted(DAY_TABLES, key=lambda name: name == MARKER):
        schema = DAY_TABLES[name].schema
        rows = engine.rows(getattr(expressions, name)(minutes[SOURCES[name]]))
        rows = rows.select(schema.names).cast(schema)
        if again.kept:
            old = day_rows(at, name, date, again.kept)
            rows = pa.concat_tables([rows, old]).sort_by("host")
        sizes.append(put_day(at, name, date, rows, facts))
    return sizes


def _note_files(at: Place, day: DayFiles, sources: str) -> None:
    """Note that the rows of a day are in other files now, so that these are not opened again."""
    if day.sources != sources:
        rows = day_rows(at, MARKER, day.date)
        put_day(at, MARKER, day.date, rows, replace(day, sources=sources).text())


def put_day(at: Place, name: str, date: str, rows: pa.Table, facts: str) -> int:
    """Write one table of one day, and return its size in bytes.

    Args:
        at: Where.
        name: A table of day sums; "days" comes last.
        date: The day.
        rows: Its rows, of all hosts.
        facts: JSON of what the rows were made of (see ``DayFiles.text``).
    """
    schema = DAY_TABLES[name].schema
    table = rows.select(schema.names).cast(schema)
    buffer = io.BytesIO()
    pq.write_table(table.replace_schema_metadata({"spoolscope_days": facts}), buffer, **_OPTIONS)
    at.put(day_path(name, date), buffer.getvalue())
    return len(buffer.getvalue())
