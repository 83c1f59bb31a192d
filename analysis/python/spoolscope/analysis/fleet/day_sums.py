"""Writer of day sums: what ``spoolscope fleet days`` keeps beside the roll-ups.

Roll-ups are by the minute; of three hundred hosts and a month they are hundreds of times what a
report needs. Each day is summed once, when its roll-ups have changed, and replaced whole.
"""

import io
import json
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq

from spoolscope.analysis.fleet import expressions
from spoolscope.analysis.fleet.day_tables import DAY_TABLES, SOURCES
from spoolscope.analysis.fleet.engines import Engine
from spoolscope.analysis.fleet.sources import (
    MARKER,
    changed_days,
    day_files,
    day_path,
    fingerprints,
    of_rollups,
    problems_of,
)
from spoolscope.traces.phases import Progress, unseen
from spoolscope.traces.rollups.coverage import examine
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
    """Sum the days whose roll-ups have changed, and write them into the same directory.

    Args:
        where: Directory or bucket of roll-ups.
        engine: What sums.
        progress: Called with the day and the share of the days that are done.

    Raises:
        SpoolscopeError: there are no roll-ups, or they cannot be read.
    """
    at = place(where)
    rollups = Rollups(where)
    there = day_files(at)
    wanted = changed_days(at, there)
    made_of = fingerprints(rollups)
    written = 0
    problems: list[str] = []
    for number, date in enumerate(wanted):
        progress(f"Summing {date}", number / len(wanted))
        of_others = [flush for flush in rollups.flushes if str(flush.day) != date]
        covered = examine(rollups.without(set(of_others)), deep=True)
        said = problems_of(covered)
        minutes = of_rollups(engine, covered.sound)
        facts = json.dumps({"sources": made_of[date], "problems": said})
        for name in sorted(DAY_TABLES, key=lambda name: name == MARKER):
            rows = engine.rows(getattr(expressions, name)(minutes[SOURCES[name]]))
            written += put_day(at, name, date, rows, facts)
        problems += [f"{date}: {one}" for one in said]
    return Summed(wanted, len(made_of) - len(wanted), written, problems)


def put_day(at: Place, name: str, date: str, rows: pa.Table, facts: str) -> int:
    """Write one table of one day, and return its size in bytes.

    Args:
        at: Where.
        name: A table of day sums; "days" comes last.
        date: The day.
        rows: Its rows, of all hosts.
        facts: JSON of what the rows were made of (see ``sources.DayFiles``).
    """
    schema = DAY_TABLES[name].schema
    table = rows.select(schema.names).cast(schema)
    buffer = io.BytesIO()
    pq.write_table(table.replace_schema_metadata({"spoolscope_days": facts}), buffer, **_OPTIONS)
    at.put(day_path(name, date), buffer.getvalue())
    return len(buffer.getvalue())
