"""Rows of a query as CSV, JSON or Parquet, batch by batch, so that few are in memory at a time."""

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from spoolscope.traces.reveal import mapped
from spoolscope.traces.text import shown, shown_json

_SPECIAL = re.compile(r'[",\r\n]')
BATCH = 50_000
"""Rows in memory at a time."""


def csv_lines(reader: pa.RecordBatchReader) -> Iterator[str]:
    """Yield a line of names, then one for each row.

    A null is empty, an empty text is ``""``. Text is escaped by ``shown``: no character of it
    controls a terminal or ends a line.
    """
    yield csv_line(reader.schema.names)
    for batch in reader:
        columns = [_plain_column(column) for column in batch.columns]
        yield from map(csv_line, zip(*columns, strict=True))


def csv_line(cells: Any) -> str:
    """Return one line of CSV; None is an empty cell, a text is escaped by ``shown``."""
    return ",".join(map(_cell_text, cells))


def _cell_text(value: Any) -> str:
    """Return a cell as RFC 4180 has it; the csv module cannot tell None from an empty text."""
    if not isinstance(value, str):
        return "" if value is None else str(value)
    text = shown(value)
    return '"' + text.replace('"', '""') + '"' if not text or _SPECIAL.search(text) else text


def csv_sheets(sheets: Sequence[tuple[str, Sequence[Mapping[str, Any]]]]) -> Iterator[str]:
    """Yield tables as one: the first column names a row's table; columns are those of all.

    Args:
        sheets: Names, and rows of columns by name.
    """
    names = list(dict.fromkeys(name for _, rows in sheets for row in rows for name in row))
    yield csv_line(["table", *(f"{name}." if name == "table" else name for name in names)])
    for sheet, rows in sheets:
        for row in rows:
            yield csv_line([sheet, *(_csv(row.get(name)) for name in names)])


def _csv(value: Any) -> Any:
    return str(value).lower() if isinstance(value, bool) else cell(value)


def json_lines(reader: pa.RecordBatchReader) -> Iterator[str]:
    """Yield the lines of a JSON array with one object for each row.

    Numbers that are whole are integers of any size; NaN and infinity are null.
    """
    yield "["
    held = None
    names = reader.schema.names
    for batch in reader:
        columns = [[plain(value) for value in column.to_pylist()] for column in batch.columns]
        for row in zip(*columns, strict=True):
            if held is not None:
                yield f"{held},"
            held = shown_json(dict(zip(names, row, strict=True)))
    if held is not None:
        yield held
    yield "]"


def write_parquet(reader: pa.RecordBatchReader, file: BinaryIO) -> None:
    """Write the rows as one Parquet file."""
    with pq.ParquetWriter(file, reader.schema, compression="zstd") as writer:
        for batch in reader:
            writer.write_batch(batch)


def plain(value: Any) -> Any:
    """Return a value of a row as a type that JSON has."""
    if value is None or isinstance(value, (str, bool, int)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, bytes):
        return value.hex()
    return str(value)


def cell(value: Any) -> Any:
    """Return a value of a row as one cell; a nested value becomes JSON."""
    value = plain(value)
    return json.dumps(value) if isinstance(value, (dict, list)) else value


def _plain_column(column: pa.Array) -> list[Any]:
    kind = column.type
    if pa.types.is_integer(kind):
        return list(column.to_pylist())
    if pa.types.is_boolean(kind):
        return [None if value is None else str(value).lower() for value in column.to_pylist()]
    if pa.types.is_string(kind) or pa.types.is_dictionary(kind):
        return list(mapped(column, shown).to_pylist())
    return [cell(value) for value in column.to_pylist()]
