"""Opening of a good trace, and of every kind of bad one."""

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from spoolscope_testing.trace_builder import TraceBuilder

from spoolscope.traces.errors import SpoolscopeError
from spoolscope.traces.parquet import write_table
from spoolscope.traces.schema import TABLES
from spoolscope.traces.trace import Trace

ROWS = 5


@pytest.fixture
def trace_path(tmp_path: Path) -> Path:
    """Return a complete trace with five calls and nothing else."""
    path = tmp_path / "trace"
    path.mkdir()
    columns = {}
    for column in TABLES["syscalls"].columns:
        if pa.types.is_dictionary(column.type):
            columns[column.name] = pa.array(["fsync"] * ROWS)
        elif not column.nullable:
            columns[column.name] = np.arange(ROWS)
    write_table(path, "syscalls", columns)
    meta = {"schema": "spoolscope/1", "counts": {"syscalls": ROWS, "tree": 0}}
    (path / "meta.json").write_text(json.dumps(meta))
    return path


def test_tables_can_be_read_whole_and_by_column(trace_path: Path) -> None:
    trace = Trace.open(trace_path)
    assert trace.table("syscalls").num_rows == ROWS
    assert trace.table("syscalls", ["ret", "ts_ns"]).column_names == ["ret", "ts_ns"]
    assert trace.table("tree").schema == TABLES["tree"].schema


def test_every_table_is_a_view(trace_path: Path) -> None:
    connection = Trace.open(trace_path).connect()
    rows = {n: connection.execute(f"SELECT count(*) FROM {n}").fetchone()[0] for n in TABLES}
    assert rows == {n: ROWS if n == "syscalls" else 0 for n in TABLES}


def test_columns_that_came_later_are_null_in_an_old_trace(trace_path: Path) -> None:
    file = trace_path / "syscalls.parquet"
    pq.write_table(pq.read_table(file).drop_columns(["offset", "lock_type"]), file)
    trace = Trace.open(trace_path)
    query = 'SELECT count(*), count("offset"), count(lock_type), sum(ret) FROM syscalls'
    assert trace.connect().execute(query).fetchone() == (ROWS, 0, 0, sum(range(ROWS)))
    read = trace.table("syscalls", ["lock_type", "ret"])
    assert read.column_names == ["lock_type", "ret"]
    assert read["lock_type"].null_count == ROWS
    assert set(trace.table("syscalls").column_names) == {c.name for c in TABLES["syscalls"].columns}


def test_a_quote_in_the_path_is_only_a_name(trace_path: Path) -> None:
    moved = trace_path.rename(trace_path.with_name("it's a trace"))
    connection = Trace.open(moved).connect()
    assert connection.execute("SELECT count(*) FROM syscalls").fetchone() == (ROWS,)


def change_meta(path: Path, **changes: object) -> None:
    meta = json.loads((path / "meta.json").read_text())
    (path / "meta.json").write_text(json.dumps(meta | changes))


def cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-100])


def drop_column(path: Path) -> None:
    file = path / "syscalls.parquet"
    pq.write_table(pq.read_table(file).drop_columns(["errno"]), file)


def make_replay(path: Path) -> None:
    (path / "meta.json").unlink()
    (path / "replay.json").write_text("{}")


def break_into_file(path: Path) -> None:
    for file in path.iterdir():
        file.unlink()
    path.rmdir()
    path.write_text("not a directory")


@pytest.mark.parametrize(
    ("damage", "message", "exit_code"),
    [
        (lambda p: p.rename(p.with_name("gone")), "does not exist", 2),
        (break_into_file, "is not a directory", 2),
        (lambda p: (p / "meta.json").unlink(), "is not a trace (it has no meta.json)", 2),
        (make_replay, "is not a trace (it has no meta.json)", 2),
        (lambda p: (p / "meta.json").write_text("{"), "is damaged: meta.json", 1),
        (lambda p: (p / "meta.json").write_bytes(b"\xff\xfe"), "is damaged: meta.json", 1),
        (lambda p: (p / "meta.json").write_text("[]"), "has schema None", 1),
        (lambda p: change_meta(p, schema="other/9"), "has schema 'other/9'", 1),
        (lambda p: change_meta(p, counts={"syscalls": 6}), "5 rows where meta.json says 6", 1),
        (lambda p: change_meta(p, counts=[]), "is damaged: meta.json", 1),
        (lambda p: change_meta(p, spools=None), "is damaged: meta.json", 1),
        (lambda p: change_meta(p, spools=[{}]), "is damaged: meta.json", 1),
        (lambda p: change_meta(p, spools=[{"mount": 5}]), "is damaged: meta.json", 1),
        (lambda p: change_meta(p, duration_ns="x"), "is damaged: meta.json", 1),
        (lambda p: (p / "syscalls.parquet").unlink(), "syscalls.parquet: it is missing", 1),
        (lambda p: cut(p / "syscalls.parquet"), "syscalls.parquet", 1),
        (lambda p: (p / "syscalls.parquet").write_bytes(b""), "syscalls.parquet", 1),
        (lambda p: (p / "tree.parquet").write_bytes(b"PAR1PAR1"), "tree.parquet", 1),
        (drop_column, "no column errno", 1),
    ],
)
def test_a_bad_trace_is_one_line_with_a_remedy(
    trace_path: Path, damage, message: str, exit_code: int
) -> None:
    damage(trace_path)
    with pytest.raises(SpoolscopeError) as caught:
        Trace.open(trace_path)
    assert message in caught.value.message
    assert str(trace_path) in caught.value.message
    assert "\n" not in caught.value.message
    assert caught.value.remedy
    assert caught.value.exit_code == exit_code


def test_rollups_given_as_a_trace_name_the_verbs_that_read_them(tmp_path: Path) -> None:
    (tmp_path / "schema=1/minutes").mkdir(parents=True)
    with pytest.raises(SpoolscopeError, match="is not a trace") as caught:
        Trace.open(tmp_path)
    assert "it has roll-ups" in caught.value.remedy
    assert "'spoolscope fleet report' and 'spoolscope gaps'" in caught.value.remedy
    assert "frozen" not in caught.value.remedy

    frozen = tmp_path / "windows-20261129T095211Z/frozen-000001"
    frozen.mkdir(parents=True)
    (frozen / "meta.json").write_text("{}")
    with pytest.raises(SpoolscopeError, match="is not a trace") as caught:
        Trace.open(tmp_path)
    assert caught.value.remedy.endswith(f"or give a frozen trace, e.g. {frozen}")


def test_pages_damaged_behind_a_good_footer_are_one_line_too(trace_path: Path) -> None:
    file = trace_path / "syscalls.parquet"
    content = bytearray(file.read_bytes())
    content[4:400] = b"\0" * 396
    file.write_bytes(content)
    with pytest.raises(SpoolscopeError, match=r"syscalls\.parquet"):
        Trace.open(trace_path).table("syscalls")


@pytest.mark.parametrize("name", ["mail[1].trace", "mail*.trace", "mail?.trace"])
def test_a_name_that_is_a_pattern_is_that_of_one_trace(tmp_path: Path, name: str) -> None:
    for directory, n in ((name, 1), ("mail1.trace", 2)):
        builder = TraceBuilder(tmp_path / directory)
        for at in range(n):
            builder.call("fsync", at * 1000)
        builder.write()
    with Trace.open(tmp_path / name).connect() as con:
        assert con.execute("SELECT count(*) FROM syscalls").fetchone() == (1,)
