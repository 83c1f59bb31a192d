"""The verb query: SQL over a trace."""

from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from functools import partial
from itertools import islice
from pathlib import Path

import click
import pyarrow as pa

from spoolscope.analysis.asked import AskedTable, tables
from spoolscope.cli.columns import table_lines
from spoolscope.cli.grid import Cell, grid
from spoolscope.cli.names import named, names_lines, names_options
from spoolscope.cli.output import claim_output, force_option, wrote
from spoolscope.cli.printing import say
from spoolscope.traces.errors import USAGE, SpoolscopeError
from spoolscope.traces.files import replacing
from spoolscope.traces.trace import Trace

TABLE, MARKDOWN, CSV, JSON, PARQUET = FORMATS = ("table", "markdown", "csv", "json", "parquet")
SHOWN_ROWS = 50
"""Most rows of a table on a terminal; files and the other formats have all."""
LINES_AT_A_TIME = 10_000

EPILOG = """\b
Examples:
  spoolscope query mail.trace --tables
  spoolscope query mail.trace "FROM commits ORDER BY dur_ns DESC LIMIT 5"
  spoolscope query mail.trace "FROM call_causes" -o causes.parquet
"""


@click.command("query", epilog=EPILOG)
@click.argument("trace", type=click.Path(path_type=Path))
@click.argument("sql", required=False)
@click.option(
    "--tables",
    "list_tables",
    is_flag=True,
    help="List the tables with columns, types and units; of one, if its name is given as SQL.",
)
@click.option(
    "--format",
    "form",
    type=click.Choice(FORMATS),
    help="How the rows come; by default as -o ends (.md, .csv, .json, .parquet), else a table.",
)
@click.option("--json", "form", flag_value=JSON, help="The same as --format json.")
@click.option("--csv", "form", flag_value=CSV, help="The same as --format csv.")
@click.option("--markdown", "form", flag_value=MARKDOWN, help="The same as --format markdown.")
@click.option("-o", "--output", type=click.Path(path_type=Path), help="File to write.")
@force_option
@names_options
def command(
    trace: Path,
    sql: str | None,
    list_tables: bool,
    form: str | None,
    output: Path | None,
    force: bool,
    names: bool,
    key_file: Path | None,
) -> None:
    """Ask TRACE in SQL (DuckDB): its tables and what the analysis makes of them.

    The statement only reads, and only the tables of the trace: no other file. A table on the
    terminal has the first 50 rows; the other formats have all. Times are integers in
    nanoseconds since the epoch.
    """
    from spoolscope.analysis.query import query
    from spoolscope.export.rows import BATCH

    opened = named(Trace.open(trace), key_file, wanted=names)
    chosen = form or (_by_suffix(output) if output else TABLE)
    if chosen == PARQUET and output is None:
        raise SpoolscopeError(
            "Parquet is not for a terminal", remedy="add -o FILE", exit_code=USAGE
        )
    private = opened.names is not None or not opened.meta.get("pseudonymised")
    put = partial(_put, form=chosen, output=output, private=private)
    claimed = claim_output(output, force=force, inputs=[trace]) if output else nullcontext()
    with claimed:
        if list_tables and chosen == TABLE:
            _put_lines(_lines_of_tables(opened, sql), output, private=private)
        elif list_tables:
            put(_columns_of_tables(opened, sql))
        elif sql is None:
            raise SpoolscopeError(
                "no SQL given", remedy="give one SELECT, or see --tables", exit_code=USAGE
            )
        else:
            with query(opened, sql, BATCH) as reader:
                put(reader)
    if opened.names is not None:
        say(*names_lines(opened, key_file), err=True)
    if output is not None:
        wrote(output)


def _by_suffix(output: Path) -> str:
    suffix = output.suffix.lstrip(".").lower().replace("md", MARKDOWN)
    if suffix not in FORMATS:
        raise SpoolscopeError(
            f"-o {output} names no format",
            remedy=f"add --format: {', '.join(FORMATS)}",
            exit_code=USAGE,
        )
    return suffix


def _put(reader: pa.RecordBatchReader, *, form: str, output: Path | None, private: bool) -> None:
    """Write rows to a file, or print them."""
    from spoolscope.export.rows import csv_lines, json_lines, write_parquet

    if form == PARQUET and output is not None:
        with replacing(output, private=private) as file:
            write_parquet(reader, file)
        return
    if form == TABLE:
        lines = _table_lines(reader, None if output else SHOWN_ROWS)
    else:
        lines = {MARKDOWN: _pipes, CSV: csv_lines, JSON: json_lines}[form](reader)
    _put_lines(lines, output, private=private)


def _put_lines(lines: Iterable[str], output: Path | None, *, private: bool) -> None:
    left = iter(lines)
    parts = iter(lambda: list(islice(left, LINES_AT_A_TIME)), [])
    if output is None:
        for part in parts:
            say(*part)
        return
    with replacing(output, private=private) as file:
        for part in parts:
            file.write("".join(f"{line}\n" for line in part).encode())


def _table_lines(reader: pa.RecordBatchReader, most: int | None) -> Iterator[str]:
    from spoolscope.export.rows import cell

    rows: list[tuple[Cell, ...]] = []
    n = 0
    for batch in reader:
        part = batch if most is None else batch.slice(0, max(0, most - n))
        columns = ([cell(value) for value in column.to_pylist()] for column in part.columns)
        rows += zip(*columns, strict=True)
        n += batch.num_rows
    yield from grid(reader.schema.names, rows)
    if n > len(rows):
        yield f"... and {n - len(rows):,} more rows (--format csv, json or parquet has all)"
    elif not n:
        yield "(no rows)"


def _pipes(reader: pa.RecordBatchReader) -> Iterator[str]:
    from spoolscope.cli.markdown import pipes
    from spoolscope.export.rows import cell

    rows = (
        [cell(value) for value in row]
        for batch in reader
        for row in zip(*(column.to_pylist() for column in batch.columns), strict=True)
    )
    yield from pipes(reader.schema.names, list(rows))


def _asked_tables(only: str | None) -> list[AskedTable]:
    known = tables()
    if only is not None and only not in known:
        raise SpoolscopeError(
            f"no table is called {only}", remedy=f"it is one of {', '.join(known)}", exit_code=USAGE
        )
    return [known[only]] if only is not None else list(known.values())


def _lines_of_tables(trace: Trace, only: str | None) -> Iterator[str]:
    counts = trace.meta["counts"]
    for table in _asked_tables(only):
        yield from table_lines(table, counts.get(table.name))


def _columns_of_tables(trace: Trace, only: str | None) -> pa.RecordBatchReader:
    rows = [
        {"table": table.name, "one_row_is": table.row, "rows": trace.meta["counts"].get(table.name)}
        | {"column": c.name, "type": c.type, "unit": c.unit, "meaning": c.meaning}
        for table in _asked_tables(only)
        for c in table.columns
    ]
    return pa.Table.from_pylist(rows).to_reader()
