"""The tables that a query can name: those of a trace, and those that analysis stages make."""

from dataclasses import dataclass
from functools import cache

import duckdb
import pyarrow as pa

from spoolscope.analysis import insight_tables
from spoolscope.analysis.stage import Made
from spoolscope.analysis.stages import STAGES, begin
from spoolscope.traces.columns import Table
from spoolscope.traces.parquet import empty_table
from spoolscope.traces.schema import TABLES

SQL_TYPES = {"int16": "SMALLINT", "int32": "INTEGER", "int64": "BIGINT", "double": "DOUBLE"} | {
    "string": "VARCHAR",
    "bool": "BOOLEAN",
}

DERIVED: dict[str, Made] = {made.name: made for stage in STAGES for made in stage.makes}
"""The tables that stages make for queries; ``inner`` tables are for other stages only."""

EXPLAINED = frozenset(made.name for made in (insight_tables.TOTALS, *insight_tables.EVIDENCE))
"""Those that need facts of an explanation (``Explanation.facts``)."""

NAMES = (*TABLES, *DERIVED)


@dataclass(frozen=True)
class AskedColumn:
    """One column: its type in SQL, its unit ("" if it has none) and meaning."""

    name: str
    type: str
    unit: str
    meaning: str


@dataclass(frozen=True)
class AskedTable:
    """One table: what a row is, and its columns."""

    name: str
    row: str
    columns: tuple[AskedColumn, ...]


def recorded(table: Table) -> AskedTable:
    """Return a table of a trace as a query sees it."""
    columns = (AskedColumn(c.name, sql_type(c.type), c.unit, c.meaning) for c in table.columns)
    return AskedTable(table.name, table.row, tuple(columns))


@cache
def derived() -> dict[str, AskedTable]:
    """Return the tables that the analysis makes; their types are those of an empty recording."""
    with duckdb.connect(":memory:") as con:
        for name in TABLES:
            con.register(name, empty_table(name))
        begin(con, {"sample_hz": 0, "spools": []}).make(*DERIVED)
        return {name: _described(con, made) for name, made in DERIVED.items()}


def tables() -> dict[str, AskedTable]:
    """Return all tables, those of a trace first."""
    return {**{name: recorded(table) for name, table in TABLES.items()}, **derived()}


def sql_type(kind: pa.DataType) -> str:
    """Return the name of a column's type in SQL."""
    value = kind.value_type if pa.types.is_dictionary(kind) else kind
    return SQL_TYPES[str(value)]


def _described(con: duckdb.DuckDBPyConnection, made: Made) -> AskedTable:
    types = {row[0]: row[1] for row in con.execute(f"DESCRIBE {made.name}").fetchall()}
    columns = (
        AskedColumn(c.name, types[c.name].partition("(")[0], c.unit, c.meaning)
        for c in made.columns
    )
    return AskedTable(made.name, made.row, tuple(columns))
