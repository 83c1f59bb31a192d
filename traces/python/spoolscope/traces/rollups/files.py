"""Writer of the flushes of roll-ups, and reader of those that count.

A flush has one file in each table, and that of ``minutes`` is written last: readers take only
flushes that have it, so that a crash shows all files or none. A flush that ``compact`` merged from
others names them; while these are still there, only one of both counts.
"""

from collections.abc import Collection, Mapping
from copy import copy
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from spoolscope.traces.errors import SpoolscopeError
from spoolscope.traces.parquet import arrow_table
from spoolscope.traces.rollups import schema
from spoolscope.traces.rollups.listing import Listing, list_files
from spoolscope.traces.rollups.names import DAY_S, HOUR_S, MARKER, Flush, day_of, flush_name
from spoolscope.traces.rollups.places import Place, place
from spoolscope.traces.rollups.sealed import DamagedError, Seal, contents_of, encoded, unsealed
from spoolscope.traces.version import version

_HOST = pa.field("host", pa.string())


def write(root: Path, host: str, tables: Mapping[str, Mapping[str, Any]]) -> list[Flush]:
    """Write one flush of a recorder, and return it: one for each UTC day of its minutes.

    It is whole or not visible, whatever happens meanwhile. A flush that is there stays as it is:
    to write it once more does nothing.

    Args:
        root: The roll-up directory; it is made if it is missing.
        host: Name of this host.
        tables: numpy or Arrow columns of each table by name, in any order of rows. A table
            that is missing has no rows; ``minutes`` has some, all of one recorder.

    Raises:
        ValueError: a column is unknown or missing, a row has no minute, or a flush of this name
            is there with other rows.
        OSError: the directory cannot be written.
    """
    if unknown := set(tables) - set(schema.ROLLUPS):
        raise ValueError(f"roll-ups have no table {', '.join(sorted(unknown))}")
    rows = {
        name: arrow_table(spec, tables[name]) if name in tables else spec.schema.empty_table()
        for name, spec in schema.ROLLUPS.items()
    }
    _check_minutes(rows)
    where = place(root)
    days = sorted({int(minute) // DAY_S for minute in rows[MARKER]["minute_s"].to_numpy()})
    return [_write_day(where, host, day, rows) for day in days]


def is_written(root: Path, host: str, recorder_id: str, seq: int, minute_s: int) -> bool:
    """Return True if the flush of one minute of a recorder is there as it was written.

    Args:
        root: The roll-up directory.
        host: Name of the host.
        recorder_id: Identity of the run of the recorder.
        seq: Number of the minute in that run.
        minute_s: The minute, in seconds since the epoch.
    """
    flush = Flush(host, day_of(minute_s), flush_name(recorder_id, seq), schema.VERSION)
    return _sound(place(root), flush) is not None


def _check_minutes(rows: Mapping[str, pa.Table]) -> None:
    recorders = rows[MARKER]["recorder_id"].unique().to_pylist()
    if len(recorders) != 1:
        raise ValueError(f"a flush has minutes of one recorder, not of {len(recorders)}")
    known = _minutes_of(rows[MARKER])
    for name, table in rows.items():
        if extra := _minutes_of(table) - known:
            raise ValueError(f"{name} has rows of (minute_s, dev) {min(extra)}: minutes has none")


def _minutes_of(table: pa.Table) -> set[tuple[int, int]]:
    keys = table.group_by(["minute_s", "dev"]).aggregate([])
    return set(zip(keys["minute_s"].to_pylist(), keys["dev"].to_pylist(), strict=True))


def _write_day(where: Place, host: str, day: int, rows: Mapping[str, pa.Table]) -> Flush:
    begin, end = (pa.scalar(at * DAY_S, pa.int64()) for at in (day, day + 1))
    of_day = {}
    for name, table in rows.items():
        minute = table["minute_s"]
        of_day[name] = table.filter(pc.and_(pc.greater_equal(minute, begin), pc.less(minute, end)))
    minutes = of_day[MARKER]
    recorder_id = str(minutes["recorder_id"][0])
    name = flush_name(recorder_id, int(np.min(minutes["seq"].to_numpy())))
    flush = Flush(host, day_of(day * DAY_S), name, schema.VERSION)
    put(where, flush, of_day, {"recorder_id": recorder_id})
    return flush


def put(
    where: Place,
    flush: Flush,
    rows: Mapping[str, pa.Table],
    about: Mapping[str, str],
    holds: Collection[str] = (),
    *,
    durable: bool = False,
) -> int:
    """Write the files of a flush, ``minutes`` last, and return their bytes.

    Files that are there stay, unless one of them is damaged.

    Args:
        where: The roll-up directory.
        flush: Names of the files.
        rows: All tables.
        about: Keys and values for the footers.
        holds: Names of other flushes whose rows these are.
        durable: See that they outlive a loss of power. A recorder's need not: the commits that
            this takes would be those that it measures.

    Raises:
        ValueError: the flush is there with other rows.
    """
    tool = {"tool": f"spoolscope {version()}"}
    order = _by_hour if flush.merged else _by_minute
    ordered = {name: order(rows[name]) for name in schema.ROLLUPS}
    contents = encoded(flush, ordered, tool | dict(about), holds)
    there = _sound(where, flush)
    if there is None:
        for table, content in contents.items():
            where.put(flush.path(table), content, durable=durable)
    else:
        _, written = unsealed(contents[MARKER], flush)
        if written.digest != there.digest:
            raise ValueError(f"{flush.path(MARKER)} is there with other rows")
    return sum(map(len, contents.values()))


def _sound(where: Place, flush: Flush) -> Seal | None:
    """Return the seal of a flush that is there as it was written, else None."""
    try:
        _, seal = unsealed(where.get(flush.path(MARKER)), flush)
        contents_of(where, flush, seal)
    except (FileNotFoundError, DamagedError):
        return None
    return seal


def _by_minute(table: pa.Table) -> pa.Table:
    return table.sort_by([(key, "ascending") for key in _keys(table)])


def _by_hour(table: pa.Table) -> pa.Table:
    """Sort so that what is alike in the minutes of an hour is together: a fourth less to keep."""
    hours = pc.divide(table["minute_s"], pa.scalar(HOUR_S, pa.int64()))
    minute, *others = _keys(table)
    order = [("hour", "ascending"), *((key, "ascending") for key in (*others, minute))]
    return table.append_column("hour", hours).sort_by(order).drop(["hour"])


def _keys(table: pa.Table) -> list[str]:
    """Return the keys of rows; the minute is the first one."""
    return [name for name in table.schema.names if name not in schema.MEASURES]


class Rollups:
    """The flushes of a directory or bucket that count.

    Attributes:
        place: Where they are.
        listing: All files that are there, with those that do not count.
        flushes: The flushes that count, sorted by host, day and name.
    """

    def __init__(
        self,
        where: str | Path,
        *,
        hosts: Collection[str] | None = None,
        since: date | None = None,
        until: date | None = None,
    ) -> None:
        """List the files; of them only ``minutes`` that were merged may be opened.

        Args:
            where: A directory, or ``s3://BUCKET/PREFIX``.
            hosts: Only these hosts; None: all.
            since: Only from this UTC date on.
            until: Only to this UTC date, itself included.

        Raises:
            SpoolscopeError: it cannot be read, or has no roll-ups.
        """
        self.place = place(where)
        self.listing: Listing = list_files(self.place, hosts=hosts, since=since, until=until)
        if not any(name.startswith("schema=") for name in self.place.names()):
            raise SpoolscopeError(
                f"{self.place.shown} has no roll-ups",
                remedy="give a directory that 'spoolscope record --rollup' has written",
            )
        self.flushes = list(self.listing.counted)

    def without(self, flushes: Collection[Flush]) -> "Rollups":
        """Return these roll-ups without some flushes."""
        left = copy(self)
        left.flushes = [flush for flush in self.flushes if flush not in flushes]
        return left

    def only(self, flushes: Collection[Flush]) -> "Rollups":
        """Return these roll-ups with some of their flushes alone."""
        left = copy(self)
        left.flushes = list(flushes)
        return left

    def by_day(self) -> dict[date, "Rollups"]:
        """Return the roll-ups of each day that has flushes, in the order of the days."""
        flushes: dict[date, list[Flush]] = {}
        for flush in self.flushes:
            flushes.setdefault(flush.day, []).append(flush)
        found = {day: self.only(flushes[day]) for day in sorted(flushes)}
        for day, own in found.items():
            own.listing = self.listing.of_day(day, own.flushes)
        return found

    def paths(self, table: str) -> list[str]:
        """Return the files of a table for DuckDB, Spark and others: paths, or URLs of a bucket."""
        return [self.place.url(flush.path(table)) for flush in self.flushes]

    def read(self, table: str, columns: Collection[str] | None = None) -> pa.Table:
        """Return rows of a table, with the column ``host`` first.

        Args:
            table: A table of the schema.
            columns: Names of the columns to read; None: all. One that is newer than a file is
                null there.
        """
        asked = [c for c in schema.ROLLUPS[table].columns if columns is None or c.name in columns]
        shape = pa.schema([pa.field(c.name, c.type) for c in asked])
        parts = [self._read(flush, table, shape) for flush in self.flushes]
        return pa.concat_tables([shape.insert(0, _HOST).empty_table(), *parts])

    def _read(self, flush: Flush, table: str, shape: pa.Schema) -> pa.Table:
        with self.place.files.open_input_file(self.place.full(flush.path(table))) as source:
            file = pq.ParquetFile(source, page_checksum_verification=True)
            there = [name for name in shape.names if name in file.schema_arrow.names]
            rows = as_schema(file.read(there), shape)
        return rows.add_column(0, _HOST, pa.repeat(flush.host, rows.num_rows))


def as_schema(rows: pa.Table, shape: pa.Schema) -> pa.Table:
    """Return rows of any version with the columns of ``shape``: null where they are newer."""
    columns = [
        rows[field.name].cast(field.type)
        if field.name in rows.schema.names
        else pa.nulls(rows.num_rows, field.type)
        for field in shape
    ]
    return pa.Table.from_arrays(columns, schema=shape)
