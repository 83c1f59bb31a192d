"""SQL over a trace: its results, their forms, and that it can do nothing else."""

import csv
import io
import json
from pathlib import Path

import duckdb
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result

from spoolscope.analysis.asked import NAMES, tables
from spoolscope.analysis.explain import explain
from spoolscope.cli.grid import grid
from spoolscope.cli.main import group
from spoolscope.traces.errors import SpoolscopeError

SUMS = "SELECT cause, sum(ns) AS ns FROM call_causes GROUP BY ALL HAVING sum(ns) > 0"


def query(*words: object) -> Result:
    result = CliRunner().invoke(group, ["query", *map(str, words)], standalone_mode=False)
    if result.exception is not None:
        raise result.exception
    return result


def refused(*words: object) -> str:
    with pytest.raises(SpoolscopeError) as error:
        query(*words)
    assert "\n" not in error.value.message
    return f"{error.value.message}; {error.value.remedy}"


def files(place: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in place.iterdir()}


def test_derived_tables_say_what_explain_says(kitchen_sink: Path) -> None:
    rows = json.loads(query(kitchen_sink, SUMS, "--json").stdout)
    assert {row["cause"]: row["ns"] for row in rows} == explain(kitchen_sink).causes
    waits = "SELECT sum(dur_ns) AS ns FROM named_waits"
    blocked = "SELECT sum(blocked_ns) AS ns FROM syscalls"
    assert (
        query(kitchen_sink, waits, "--json").stdout == query(kitchen_sink, blocked, "--json").stdout
    )


def test_tables_of_insights_and_the_report_are_those_of_explain(kitchen_sink: Path) -> None:
    found = explain(kitchen_sink)
    sql = (
        "SELECT (SELECT filesystem_ns FROM totals) AS filesystem_ns, "
        "(SELECT coalesce(list(path ORDER BY path), []) FROM lookup_cost) AS directories, "
        "(SELECT sum(total_ns) FROM served) AS served_ns, "
        "(SELECT sum(ns) FROM bin_times) AS binned_ns, "
        "(SELECT sum(n) FROM bin_calls JOIN process_parts USING (part)) >= 1 AS named"
    )
    assert json.loads(query(kitchen_sink, sql, "--json").stdout) == [{
        "filesystem_ns": found.filesystem_ns,
        "directories": sorted(cost.path for cost in found.lookups),
        "served_ns": sum(requests.total_ns for requests in found.evidence.requests),
        "binned_ns": sum(found.causes.values()),
        "named": True,
    }]  # fmt: skip


def test_every_table_has_the_columns_that_are_told(kitchen_sink: Path) -> None:
    described = [f"SELECT '{name}' AS name, * FROM (DESCRIBE {name})" for name in NAMES]
    columns: dict[str, list[tuple[str, str]]] = {}
    for row in json.loads(query(kitchen_sink, " UNION ALL ".join(described), "--json").stdout):
        kind = row["column_type"].partition("(")[0]
        columns.setdefault(row["name"], []).append((row["column_name"], kind))
    documented = {name: tables()[name].columns for name in NAMES}
    assert columns == {name: [(c.name, c.type) for c in told] for name, told in documented.items()}
    assert all(c.meaning for told in documented.values() for c in told)


def test_a_derived_table_is_named_in_any_case(kitchen_sink: Path) -> None:
    for name in ("edges", "totals", "bin_calls"):
        assert query(kitchen_sink, f"SELECT count(*) AS n FROM {name.upper()}").stdout


def test_the_same_rows_in_every_form(kitchen_sink: Path, tmp_path: Path) -> None:
    sql = "SELECT tid, seq, comm, path, dur_ns FROM syscalls LEFT JOIN paths USING (path_id)"
    sql += " ORDER BY tid, seq"
    made = {form: tmp_path / f"x.{form}" for form in ("csv", "json", "parquet")}
    for file in made.values():
        assert query(kitchen_sink, sql, "-o", file).stdout == f"Wrote {file}\n"
    rows = pq.read_table(made["parquet"]).to_pylist()
    assert len(rows) > 80
    assert json.loads(made["json"].read_text()) == rows
    texts = list(csv.DictReader(io.StringIO(made["csv"].read_text())))
    assert [int(row["dur_ns"]) for row in texts] == [row["dur_ns"] for row in rows]
    assert made["csv"].read_text() == query(kitchen_sink, sql, "--csv").stdout
    assert made["json"].read_text() == query(kitchen_sink, sql, "--json").stdout


@pytest.mark.parametrize("form", ["table", "csv", "json"])
def test_names_drive_no_terminal(form: str, kitchen_sink: Path) -> None:
    sql = "SELECT path AS \"a\x1b[31mb\", path || chr(155) FROM paths WHERE path LIKE 'a%'"
    text = query(kitchen_sink, sql, "--format", form).stdout
    assert "title" in text
    assert all(character == "\n" or character.isprintable() for character in text)


def test_columns_of_equal_names_are_kept_apart(kitchen_sink: Path, tmp_path: Path) -> None:
    sql = "SELECT 1 AS a, 2 AS a, 3 AS a_1, 4 AS b"
    wanted = {"a": 1, "a_1": 2, "a_1_1": 3, "b": 4}
    assert json.loads(query(kitchen_sink, sql, "--json").stdout) == [wanted]
    query(kitchen_sink, sql, "-o", tmp_path / "x.parquet")
    assert pq.read_table(tmp_path / "x.parquet").to_pylist() == [wanted]


def test_a_null_is_empty_in_csv_and_an_empty_text_is_not(kitchen_sink: Path) -> None:
    sql = "FROM (VALUES (1, NULL, ''), (2, 'a\"b', 'c,d')) AS t(n, x, y)"
    assert query(kitchen_sink, sql, "--csv").stdout == 'n,x,y\n1,,""\n2,"a""b","c,d"\n'
    alone = query(kitchen_sink, "FROM (VALUES (''), (NULL)) AS t(x)", "--csv").stdout
    assert alone == 'x\n""\n\n'


def test_a_file_has_all_rows_or_is_refused(kitchen_sink: Path, tmp_path: Path) -> None:
    sql = "SELECT * FROM range(120)"
    assert "names no format; add --format" in refused(kitchen_sink, sql, "-o", tmp_path / "x.txt")
    query(kitchen_sink, sql, "-o", tmp_path / "x.txt", "--format", "table")
    lines = (tmp_path / "x.txt").read_text().splitlines()
    assert lines[-1].split() == ["119"]
    assert len([line for line in lines if line.strip().isdigit()]) == 120
    query(kitchen_sink, "--tables", "-o", tmp_path / "t.txt", "--format", "table")
    assert "syscalls" in (tmp_path / "t.txt").read_text()


def test_a_value_of_any_type_has_a_cell(kitchen_sink: Path) -> None:
    sql = "SELECT [1, 2] AS l, {'a': NULL} AS s, INTERVAL 1 DAY AS i, 'b'::BLOB AS b, NULL AS n, "
    sql += "170141183460469231731687303715884105727::HUGEINT AS h, 1.5::DECIMAL(4, 2) AS d, "
    sql += "DATE '2026-01-02' AS t, 'nan'::DOUBLE AS f, true AS o, '' AS e, MAP {'k': 1} AS m"
    row = json.loads(query(kitchen_sink, sql, "--json").stdout)[0]
    assert (row["l"], row["s"], row["d"], row["f"]) == ([1, 2], {"a": None}, 1.5, None)
    assert row["h"] == 2**127 - 1
    cells = next(csv.DictReader(io.StringIO(query(kitchen_sink, sql, "--csv").stdout)))
    assert (cells["l"], cells["n"], cells["o"], cells["h"]) == ("[1, 2]", "", "true", str(row["h"]))
    assert query(kitchen_sink, sql).stdout


WRITES = (
    "COPY (SELECT 1) TO 'FILE'",
    "EXPLAIN ANALYZE COPY (SELECT 1) TO 'FILE' (use_tmp_file false)",
    "WITH a AS (COPY (SELECT 1 AS a) TO 'FILE' (FORMAT parquet, use_tmp_file false)) FROM a",
    "WITH a AS (COPY (SELECT 1 AS a) TO 'NEW' (FORMAT parquet, use_tmp_file false)) FROM a",
    "ATTACH 'NEW'",
    "EXPORT DATABASE 'NEW'",
    "CREATE TABLE x AS SELECT 1",
    "DROP VIEW syscalls",
    "SET enable_external_access = true",
    "SELECT 1; COPY (SELECT 1) TO 'NEW'",
    "INSTALL httpfs",
    "CALL duckdb_settings()",
)
READS = (
    "FROM read_text('SECRET')",
    "FROM 'SECRET'",
    "FROM read_csv('SECRET')",
    "FROM read_parquet('FILE')",
    "FROM glob('/*')",
    "SELECT * FROM query('FROM read_text(''SECRET'')')",
    "SELECT (SELECT content FROM read_blob('SECRET'))",
    "SELECT getenv('HOME')",
)


@pytest.mark.parametrize("sql", [*WRITES, *READS])
def test_a_query_touches_no_file(sql: str, kitchen_sink: Path, tmp_path: Path) -> None:
    secret, new = tmp_path / "secret.csv", tmp_path / "new"
    secret.write_text("key\n")
    before = files(kitchen_sink)
    places = {"SECRET": secret, "FILE": kitchen_sink / "syscalls.parquet", "NEW": new}
    for word, place in places.items():
        sql = sql.replace(word, str(place))
    assert "; " in refused(kitchen_sink, sql)
    assert files(kitchen_sink) == before
    assert not new.exists()


def test_duckdb_of_this_version_would_write(tmp_path: Path) -> None:
    """Check that the attack of the test above works without the lock, if DuckDB knows it."""
    file = tmp_path / "x.parquet"
    sql = f"WITH a AS (COPY (SELECT 1 AS a) TO '{file}') SELECT * FROM a"
    try:
        duckdb.connect().execute(sql)
    except duckdb.ParserException:
        pytest.skip("this DuckDB has no COPY in a WITH")
    assert file.exists()


def test_errors_name_a_remedy(kitchen_sink: Path, tmp_path: Path) -> None:
    assert "--tables" in refused(kitchen_sink, "SELECT nothing FROM syscalls")
    assert "--tables" in refused(kitchen_sink, "FROM nowhere")
    assert "--tables" in refused(kitchen_sink, "SELEC 1")
    assert "--tables" in refused(kitchen_sink)
    assert "one of" in refused(kitchen_sink, "nowhere", "--tables")
    assert "-o FILE" in refused(kitchen_sink, "SELECT 1", "--format", "parquet")
    assert "SELECT" in refused(kitchen_sink, "")
    late = "SELECT CASE WHEN seq > 10 THEN error('boom') END FROM syscalls"
    assert "boom" in refused(kitchen_sink, late, "--csv", "-o", tmp_path / "late.csv")
    assert list(tmp_path.glob("*late*")) == []


def test_a_mistyped_table_gets_the_nearest_of_the_trace(kitchen_sink: Path) -> None:
    """DuckDB would name one of its own, which no query may be meant for."""
    said = refused(kitchen_sink, "FROM syscals")
    assert "does not exist; did you mean syscalls? " in said
    far = refused(kitchen_sink, "FROM nosuch")
    assert "pg_" not in said + far
    assert "did you mean" not in far.lower()


def test_memory_has_an_end(kitchen_sink: Path) -> None:
    long = "SELECT list(a.range * 1000003) FROM range(100000000) a"
    assert "LIMIT" in refused(kitchen_sink, long)


def test_a_file_is_replaced_only_with_force(kitchen_sink: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.csv"
    out.write_text("mine")
    assert "--force" in refused(kitchen_sink, "SELECT 1", "-o", out)
    assert "read" in refused(kitchen_sink, "SELECT 1", "-f", "--csv", "-o", kitchen_sink)
    for words in ([], ["-f"]):
        inside = refused(kitchen_sink, "SELECT 1", *words, "-o", kitchen_sink / "paths.parquet")
        assert "lies in" in inside
    query(kitchen_sink, "SELECT 1 AS n", "-f", "-o", out)
    assert out.read_text() == "n\n1\n"


def test_a_trace_that_kept_its_names_gives_private_files(builder, tmp_path: Path) -> None:
    builder.call("fsync", 1, path="alice")
    trace = builder.write(pseudonymised=False)
    query(trace, "FROM paths", "-o", tmp_path / "out.csv")
    assert (tmp_path / "out.csv").stat().st_mode & 0o777 == 0o600


def test_every_table_is_listed_within_80_columns(kitchen_sink: Path) -> None:
    text = query(kitchen_sink, "--tables").stdout
    assert all(f"{name} (" in text for name in NAMES)
    assert max(map(len, text.splitlines())) <= 80
    rows = list(csv.DictReader(io.StringIO(query(kitchen_sink, "--tables", "--csv").stdout)))
    assert {row["table"] for row in rows} == set(NAMES)
    assert {row["unit"] for row in rows if row["column"].endswith("_ns")} == {"ns"}


@pytest.mark.parametrize("columns_", [1, 3, 9, 25, 60])
def test_a_grid_is_never_wider_than_a_terminal(columns_: int) -> None:
    names = [f"name {n}" * (n % 4 + 1) for n in range(columns_)]
    rows = [[10**12 if n % 3 == 0 else "long text " * (n % 9) for n in range(columns_)]] * 3
    lines = grid(names, [*rows, [None] * columns_])
    assert max(map(len, lines)) <= 80
    assert sum(line.count(str(10**12)) for line in lines) == 3 * ((columns_ + 2) // 3)
