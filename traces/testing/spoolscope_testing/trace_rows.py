"""Rows of a trace under construction, held against the schema when they are written."""

import json
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa

from spoolscope.traces.columns import Column
from spoolscope.traces.parquet import write_table
from spoolscope.traces.schema import SCHEMA, TABLES

MS = 1_000_000
START = 1_700_000_000_000_000_000
"""Begin of every trace written by hand, in ns since the epoch."""

Row = dict[str, Any]
SPOOL: Row = {
    "mount": "/spool", "fstype": "ext4", "options": "rw,noatime", "source": "/dev/loop0", "dev": 1,
    "size_bytes": 1 << 30,
}  # fmt: skip
META: Row = {
    "schema": SCHEMA, "version": "0", "kernel": "6.18.0", "arch": "x86_64", "cpus": 2,
    "start_ns": START, "duration_ns": 1000 * MS, "spools": [SPOOL], "tier": "T2",
    "complete": True, "lost": 0, "paths_unresolved": 0, "calls_in_flight": 0,
    "pseudonymised": True, "filter": {}, "programs": {"attached": [], "missing": {}},
}  # fmt: skip


class TraceRows:
    """Rows by table, and the numbers of paths and stacks.

    Attributes:
        tables: Rows of every table of the schema, in any order; a test may change them.
    """

    def __init__(self) -> None:
        self.tables: dict[str, list[Row]] = {name: [] for name in TABLES}
        self._paths: dict[tuple[str, str], int] = {}
        self._stacks: dict[tuple[str, ...], int] = {}

    def add(self, table: str, **row: Any) -> Row:
        """Add a row; columns without a value are null, or blank where the schema has no null."""
        self.tables[table].append(row)
        return row

    def path(self, path: str, kind: str = "spool") -> int:
        """Return the number of a path."""
        known = self._paths.get((path, kind))
        if known is not None:
            return known
        number = self._paths[path, kind] = len(self._paths)
        self.add(
            "paths", path_id=number, path=path, kind=kind, spool=0 if kind == "spool" else None
        )
        return number

    def stack(self, frames: str) -> int:
        """Return the number of a stack, written as "inner < ... < outer"."""
        names = tuple(frame.strip() for frame in frames.split("<"))
        known = self._stacks.get(names)
        if known is not None:
            return known
        number = self._stacks[names] = len(self._stacks) + 1
        for depth, symbol in enumerate(names):
            self.add("stacks", stack_id=number, depth=depth, address=-depth, symbol=symbol)
        return number

    def write(self, directory: Path, **meta: Any) -> Path:
        """Write a trace and return its directory.

        Args:
            directory: Directory, made unless it is there.
            meta: Members of meta.json that differ from ``META``.

        Raises:
            TypeError: a row has a column that the schema does not have.
            pyarrow.ArrowInvalid: a value does not fit its column.
        """
        directory.mkdir(parents=True, exist_ok=True)
        counts = {name: _write(directory, name, rows) for name, rows in self.tables.items()}
        (directory / "meta.json").write_text(json.dumps(META | {"counts": counts} | meta))
        return directory


def _write(directory: Path, name: str, rows: Sequence[Row]) -> int:
    if not rows:
        (directory / f"{name}.parquet").write_bytes(_empty(name))
        return 0
    columns = TABLES[name].columns
    known = {column.name for column in columns}
    for row in rows:
        if unknown := row.keys() - known:
            raise TypeError(f"the table {name} has no column {', '.join(sorted(unknown))}")
    arrays = {
        column.name: pa.array([_value(column, row) for row in rows], column.type)
        for column in columns
    }
    return write_table(directory, name, arrays)


@cache
def _empty(name: str) -> bytes:
    """Return the file of a table without rows; most tables of most traces have none."""
    with TemporaryDirectory() as place:
        write_table(Path(place), name, {column.name: [] for column in TABLES[name].columns})
        return Path(place, f"{name}.parquet").read_bytes()


def _value(column: Column, row: Row) -> Any:
    value = row.get(column.name)
    if value is not None or column.nullable:
        return value
    if pa.types.is_string(column.type) or pa.types.is_dictionary(column.type):
        return ""
    return False if pa.types.is_boolean(column.type) else 0
