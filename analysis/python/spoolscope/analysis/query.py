"""SQL over the tables of a trace and the tables derived from them, and nothing else.

A query may come from a web page or a colleague, and root often runs it. The engine that runs it can
open no file, and its settings are locked. A check for SELECT would not be enough: DuckDB 2 has
``WITH a AS (COPY ... TO 'FILE') SELECT ...``, which writes.
"""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from itertools import chain, count

import duckdb
import pyarrow as pa

from spoolscope.analysis.asked import DERIVED, EXPLAINED, tables
from spoolscope.analysis.explain import bound_resources, explain_with
from spoolscope.analysis.stages import begin
from spoolscope.traces.errors import USAGE, SpoolscopeError
from spoolscope.traces.trace import Trace

_NO_TABLE = re.compile(r"Catalog Error: Table with name (\S+) does not exist")


@contextmanager
def query(trace: Trace, sql: str, batch: int) -> Iterator[pa.RecordBatchReader]:
    """Run one statement on a trace and yield its rows, ``batch`` at a time.

    Args:
        trace: An opened trace, with real names if these are to be shown.
        sql: One SELECT, in DuckDB's dialect.
        batch: Rows at a time.

    Raises:
        SpoolscopeError: it is no SQL, is not one statement that reads, names an unknown table or
            column, reads another file, or needs more memory than there is.
    """
    with trace.connect(opens_files=False) as con:
        bound_resources(con, int(trace.meta["counts"]["syscalls"]))
        words = {word.lower() for word in re.findall(r"\w+", sql)}
        with _explained(trace):
            _check(con, sql)
            facts = {} if words.isdisjoint(EXPLAINED) else explain_with(con, trace).facts
            con.execute("SET enable_external_access = false")
            work = begin(con, trace.meta)
            work.facts |= facts
            work.make(*(name for name in DERIVED if name in words))
            con.execute("SET lock_configuration = true")
            reader = con.sql(sql).to_arrow_reader(batch)
        names = _apart(reader.schema.names)
        schema = pa.schema([f.with_name(n) for f, n in zip(reader.schema, names, strict=True)])
        yield pa.RecordBatchReader.from_batches(schema, _batches(reader, names, trace))


def _apart(names: Sequence[str]) -> list[str]:
    """Return names of columns, of which a second ``a`` is ``a_1``, as DuckDB names it in tables."""
    made: list[str] = []
    for name in names:
        numbered = (f"{name}_{n}" for n in count(1))
        made.append(next(n for n in chain([name], numbered) if n not in made))
    return made


def _batches(
    reader: pa.RecordBatchReader, names: Sequence[str], trace: Trace
) -> Iterator[pa.RecordBatch]:
    with _explained(trace):
        for batch in reader:
            yield batch.rename_columns(names)


def _check(con: duckdb.DuckDBPyConnection, sql: str) -> None:
    statements = con.extract_statements(sql)
    if len(statements) != 1:
        raise SpoolscopeError(
            f"this is {len(statements) or 'no'} statements, not one",
            remedy="give one SELECT",
            exit_code=USAGE,
        )
    kind = statements[0].type.name
    if kind != "SELECT":
        raise SpoolscopeError(
            f"a query only reads, and this is {kind}", remedy="give one SELECT", exit_code=USAGE
        )


@contextmanager
def _explained(trace: Trace) -> Iterator[None]:
    """Turn an error of DuckDB into one line and a remedy."""
    try:
        yield
    except (duckdb.Error, pa.ArrowException, OSError) as error:  # OSError: in a later batch
        raise SpoolscopeError(
            _first(error), remedy=_remedy(error, trace), exit_code=USAGE
        ) from None


def _first(error: Exception) -> str:
    """Return the message of an error, without its excerpt of the statement.

    Hints stay but for tables: the engine knows tables of its own, which are no answer.
    """
    said = str(error).split("\nLINE ")[0].split("\n\nPossible")[0]
    if _NO_TABLE.match(said):
        said = said.splitlines()[0]
    return " ".join(said.split()).rstrip(".!")


def _remedy(error: Exception, trace: Trace) -> str:
    said = str(error)
    if "Permission Error" in said:
        return "a query reads the tables of the trace only; copy its result with -o"
    if "Out of Memory" in said:
        return "group or LIMIT what it returns, or ask for a part of the time (WHERE ts_ns ...)"
    listed = f"'spoolscope query {trace.path} --tables' lists tables and columns"
    missing = _NO_TABLE.match(said)
    near = get_close_matches(missing[1], tables(), 1) if missing else []
    return f"did you mean {near[0]}? {listed}" if near else listed
