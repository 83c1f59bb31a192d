"""Descriptions of tables for a terminal."""

from collections.abc import Iterator
from textwrap import wrap

from spoolscope.analysis.asked import AskedTable
from spoolscope.cli.grid import WIDTH
from spoolscope.cli.output import wrapped


def table_lines(table: AskedTable, rows: int | None) -> Iterator[str]:
    """Yield lines that describe a table and its columns, no wider than a terminal.

    Args:
        table: One of a trace, or a derived one.
        rows: Number of its rows; None if it is made when a query names it.
    """
    many = "made when it is named" if rows is None else f"{rows:,} rows"
    yield from wrapped(f"{table.name} ({many}): {table.row}")
    for column in table.columns:
        unit = f"[{column.unit}] " if column.unit else ""
        text = f"  {column.name:18} {column.type:9} {unit}{column.meaning}"
        yield from wrap(text, WIDTH, subsequent_indent=" " * 31)
