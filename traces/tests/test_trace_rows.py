"""The builder of traces for tests writes what the schema says, and nothing else."""

import pyarrow as pa
import pytest
from spoolscope_testing.trace_rows import START, TraceRows

from spoolscope.traces.schema import TABLES
from spoolscope.traces.trace import Trace


def test_every_table_takes_a_row_without_values(tmp_path):
    rows = TraceRows()
    for name in TABLES:
        rows.add(name)
    trace = Trace.open(rows.write(tmp_path / "trace", lost=7))
    assert trace.meta["counts"] == dict.fromkeys(TABLES, 1)
    assert (trace.meta["lost"], trace.meta["start_ns"]) == (7, START)
    for name, table in TABLES.items():
        (row,) = trace.table(name).to_pylist()
        assert {c.name for c in table.columns if row[c.name] is None} == {
            c.name for c in table.columns if c.nullable
        }


def test_names_and_stacks_have_one_number_each(tmp_path):
    rows = TraceRows()
    assert [rows.path("a"), rows.path("b"), rows.path("a"), rows.path("a", "text")] == [0, 1, 0, 2]
    assert [rows.stack("in < out"), rows.stack("in"), rows.stack("in<out")] == [1, 2, 1]
    trace = Trace.open(rows.write(tmp_path / "trace"))
    assert [row["spool"] for row in trace.table("paths").to_pylist()] == [0, 0, None]
    frames = [(r["stack_id"], r["depth"], r["symbol"]) for r in trace.table("stacks").to_pylist()]
    assert frames == [(1, 0, "in"), (1, 1, "out"), (2, 0, "in")]


def test_what_the_schema_does_not_have_is_refused(tmp_path):
    rows = TraceRows()
    rows.add("syscalls", ts_ns=START, speed=7)
    with pytest.raises(TypeError, match="the table syscalls has no column speed"):
        rows.write(tmp_path / "trace")
    rows.tables["syscalls"] = [{"ts_ns": "soon"}]
    with pytest.raises((pa.ArrowInvalid, pa.ArrowTypeError)):
        rows.write(tmp_path / "trace")
