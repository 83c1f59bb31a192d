"""The tables of a trace and the derived ones, as files of CSV or as one SQLite database."""

import errno
import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pyarrow as pa
import pyarrow.csv

from spoolscope.analysis.asked import AskedTable, tables
from spoolscope.export.content import BATCH, Content
from spoolscope.export.rows import cell
from spoolscope.traces.files import write_file
from spoolscope.traces.reveal import mapped
from spoolscope.traces.schema import TABLES
from spoolscope.traces.text import shown, shown_json

DERIVED = ("named_waits", "call_causes", "commit_spans", "commit_parts", "commit_waits")
"""Tables that are exported beside those of the trace."""
COLUMNS = ("table", "column", "type", "unit", "meaning")
_OF_CALLS = "(seq IS NULL OR (tid, seq) IN (SELECT tid, seq FROM shown_calls))"


class CsvTables:
    """A directory with a CSV file for each table."""

    sentence = "A directory: one CSV file a table, columns.csv with units, meta.json."
    opens = "any spreadsheet, or duckdb -c \"FROM '{output}/syscalls.csv'\""
    call_by_call = True

    def write(self, content: Content, output: Path) -> None:
        """Write the files. Text is escaped by ``shown``; a null is empty, an empty text ``""``."""
        output.mkdir()
        for table, batches in _tables(content):
            _write_csv(output / f"{table.name}.csv", batches)
        about = pa.Table.from_pylist(
            _columns(), pa.schema([(name, pa.string()) for name in COLUMNS])
        )
        pa.csv.write_csv(about, output / "columns.csv")
        write_file(output / "meta.json", shown_json(content.trace.meta, indent=1) + "\n")


class Sqlite:
    """One SQLite database."""

    sentence = "One SQLite database: the same tables, columns and meta."
    opens = "sqlite3 {output} 'SELECT cause, sum(ns) FROM call_causes GROUP BY cause'"
    call_by_call = True

    def write(self, content: Content, output: Path) -> None:
        """Write the database; truth values are 0 and 1."""
        with errors_of_the_disk(output), closing(sqlite3.connect(output)) as base:
            base.execute("PRAGMA journal_mode = OFF")  # the file appears whole or not at all
            base.execute("PRAGMA synchronous = OFF")
            for table, batches in _tables(content):
                _create(base, table)
                marks = ", ".join("?" * len(table.columns))
                for batch in batches:
                    values = zip(*(column.to_pylist() for column in batch.columns), strict=True)
                    base.executemany(f'INSERT INTO "{table.name}" VALUES ({marks})', values)
            about = ", ".join(f'"{name}" TEXT' for name in COLUMNS)
            base.execute(f"CREATE TABLE columns ({about})")
            rows = (tuple(row.values()) for row in _columns())
            base.executemany("INSERT INTO columns VALUES (?, ?, ?, ?, ?)", rows)
            base.execute("CREATE TABLE meta (name TEXT, value TEXT)")
            meta = [(name, cell(value)) for name, value in content.trace.meta.items()]
            base.executemany("INSERT INTO meta VALUES (?, ?)", meta)
            base.commit()


@contextmanager
def errors_of_the_disk(output: Path) -> Iterator[None]:
    """Turn SQLite's word for a full disk into that of the operating system."""
    try:
        yield
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode != sqlite3.SQLITE_FULL:
            raise
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(output)) from error


def _create(base: sqlite3.Connection, table: AskedTable) -> None:
    kinds = {"VARCHAR": "TEXT", "ENUM": "TEXT", "DOUBLE": "REAL"}
    named = (f'"{c.name}" {kinds.get(c.type, "INTEGER")}' for c in table.columns)
    base.execute(f'CREATE TABLE "{table.name}" ({", ".join(named)})')


def _columns() -> list[dict[str, str]]:
    return [
        {"table": table.name, "column": c.name, "type": c.type, "unit": c.unit}
        | {"meaning": c.meaning}
        for table in _asked().values()
        for c in table.columns
    ]


def _tables(content: Content) -> Iterator[tuple[AskedTable, pa.RecordBatchReader]]:
    """Yield each table with its rows; rows that belong to calls only for exported calls."""
    content.work.make(*DERIVED)
    for name, table in _asked().items():
        names = [column.name for column in table.columns]
        source, where = name, "true"
        if name == "syscalls":
            source = "shown_calls"
        elif {"tid", "seq"} <= set(names) and not content.selection.is_whole:
            where = _OF_CALLS
        order = " ORDER BY ts_ns" if "ts_ns" in names else ""
        listed = ", ".join(f'"{column}"' for column in names)
        sql = f"SELECT {listed} FROM {source} WHERE {where}{order}"
        yield table, content.con.sql(sql).to_arrow_reader(BATCH)


def _asked() -> dict[str, AskedTable]:
    return {name: table for name, table in tables().items() if name in (*TABLES, *DERIVED)}


def _write_csv(file: Path, batches: pa.RecordBatchReader) -> None:
    texts = (pa.string() if _is_text(kind) else kind for kind in batches.schema.types)
    schema = pa.schema(list(zip(batches.schema.names, texts, strict=True)))
    with pa.csv.CSVWriter(file, schema) as writer:
        for batch in batches:
            writer.write_batch(_shown(batch))


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_dictionary(kind))


def _shown(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return rows whose texts cannot control a terminal."""
    made = [
        mapped(column, shown).cast(pa.string()) if _is_text(column.type) else column
        for column in batch.columns
    ]
    return pa.RecordBatch.from_arrays(made, names=batch.schema.names)
