"""Versions of roll-ups: old ones stay readable, mixed ones are united, newer ones refused."""

from collections.abc import Callable
from dataclasses import replace
from datetime import date
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pytest
from spoolscope_testing.rollups import START_S, RollupMaker

from spoolscope.traces.columns import I64, Column
from spoolscope.traces.rollups import schema
from spoolscope.traces.rollups.compaction import compact
from spoolscope.traces.rollups.coverage import examine
from spoolscope.traces.rollups.files import Rollups, write
from spoolscope.traces.rollups.schema import ROLLUPS

KEPT = Path(__file__).parent / "rollups-v1"
"""One flush of version 1, made by RollupMaker(calls=3).write(KEPT, minutes=1) and kept."""

ROWS = {"calls": 45, "commits": 2, "directories": 1, "minutes": 1}
NEW = Column("spins", I64, "", "Something that version 2 counts.", nullable=True)


@pytest.fixture
def version_2(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Return a function that makes spoolscope one of version 2, with one more column."""

    def begin() -> None:
        calls = schema.ROLLUPS["calls"]
        more = replace(calls, columns=(*calls.columns, NEW))
        monkeypatch.setattr(schema, "ROLLUPS", schema.ROLLUPS | {"calls": more})
        monkeypatch.setattr(schema, "VERSION", 2)

    return begin


def test_version_1_stays_readable() -> None:
    rollups = Rollups(KEPT)
    coverage = examine(rollups, deep=True, now_s=START_S + 86_400)
    assert coverage.findings == ()
    assert {name: rollups.read(name).num_rows for name in ROLLUPS} == ROWS
    calls = rollups.read("calls")
    whole = calls.filter(pc.equal(calls["cause"], schema.CALL))
    assert (pc.sum(whole["n"]).as_py(), pc.sum(whole["sum_ns"]).as_py()) == (15, 28_284_779)
    assert rollups.read("minutes").column_names == [
        "host", "minute_s", "dev", "seq", "boot_id", "recorder_id", "covered_ns",
        "clock_step_ns", "calls", "lost", "recorder_ns", "cpus", "fs", "options", "device",
        "kernel", "tool",
    ]  # fmt: skip


def test_versions_are_logged() -> None:
    assert list(schema.CHANGES) == list(range(1, schema.VERSION + 1))


def test_mixed_versions_read_by_union(tmp_path: Path, version_2: Callable[[], None]) -> None:
    _both(tmp_path, version_2)
    calls = Rollups(tmp_path).read("calls")
    old, new = (calls.filter(pc.equal(calls["host"], host)) for host in ("mail1", "mail2"))
    assert old["spins"].null_count == old.num_rows > 0
    assert set(new["spins"].to_pylist()) == {7}
    assert examine(Rollups(tmp_path), now_s=START_S + 86_400).complete
    seen = duckdb.sql(
        f"SELECT host, count(*), count(spins) FROM read_parquet({Rollups(tmp_path).paths('calls')},"
        " union_by_name=true, hive_partitioning=true) GROUP BY ALL ORDER BY host"
    ).fetchall()
    assert seen == [("mail1", old.num_rows, 0), ("mail2", new.num_rows, new.num_rows)]


def test_mixed_versions_are_merged_into_the_newer(
    tmp_path: Path, version_2: Callable[[], None]
) -> None:
    RollupMaker().write(tmp_path, minutes=5)
    version_2()
    later = RollupMaker(recorder_id="c0ffee", start_s=START_S + 300)
    write(tmp_path, "mail1", _with_spins(later, 0, 5))
    before = pc.sum(Rollups(tmp_path).read("calls")["sum_ns"]).as_py()
    compact(tmp_path, until=date(2026, 3, 9))
    merged = Rollups(tmp_path)
    assert [flush.version for flush in merged.flushes] == [2]
    calls = merged.read("calls")
    assert pc.sum(calls["sum_ns"]).as_py() == before
    assert 0 < calls["spins"].null_count < calls.num_rows


def test_a_newer_version_is_counted_and_left_out(
    tmp_path: Path, version_2: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    _both(tmp_path, version_2)
    monkeypatch.undo()
    rollups = Rollups(tmp_path)
    assert {flush.host for flush in rollups.flushes} == {"mail1"}
    assert rollups.listing.newer == {2: 4}
    coverage = examine(rollups, now_s=START_S + 86_400)
    assert [finding.sentence for finding in coverage.findings] == [
        "Files of a newer spoolscope: 4; their rows are left out."
    ]
    assert not coverage.complete


def test_engines_read_the_same(tmp_path: Path) -> None:
    """DuckDB and datasets of pyarrow, each as a user would open the directory."""
    for host in ("mail1", "42"):
        RollupMaker(host=host).write(tmp_path)
    ours = _by_host(Rollups(tmp_path).read("calls"))
    pattern = f"{tmp_path}/schema=*/calls/host=*/date=*/*.parquet"
    by_duckdb = duckdb.sql(
        "SELECT host, count(*), sum(n)::BIGINT, sum(sum_ns)::BIGINT FROM read_parquet("
        f"'{pattern}', union_by_name=true, hive_partitioning=true, "
        "hive_types={'host': VARCHAR, 'date': DATE}) GROUP BY host"
    ).fetchall()
    assert {host: tuple(sums) for host, *sums in by_duckdb} == ours
    partitions = ds.partitioning(
        pa.schema([("host", pa.string()), ("date", pa.string())]), flavor="hive"
    )
    dataset = ds.dataset(tmp_path / "schema=1/calls", partitioning=partitions)
    assert _by_host(dataset.to_table()) == ours


def test_polars_reads_the_same(tmp_path: Path, require: Callable[[str, str], None]) -> None:
    try:
        import polars as pl
    except ImportError:
        require("polars", "no polars: pip install -e .[dev]")
    for host in ("mail1", "42"):
        RollupMaker(host=host).write(tmp_path)
    compact(tmp_path, until=date(2026, 3, 1), hosts=["42"])
    rows = pl.scan_parquet(
        f"{tmp_path}/schema=*/calls/**/*.parquet",
        hive_schema={"schema": pl.Int64, "host": pl.String, "date": pl.Date},
        missing_columns="insert",
    )
    sums = rows.group_by("host").agg(pl.len(), pl.col("n").sum(), pl.col("sum_ns").sum())
    assert {host: tuple(found) for host, *found in sums.collect().rows()} == _by_host(
        Rollups(tmp_path).read("calls")
    )


def _by_host(rows: pa.Table) -> dict[str, tuple[int, int, int]]:
    sums = rows.group_by("host").aggregate([([], "count_all"), ("n", "sum"), ("sum_ns", "sum")])
    names = ("count_all", "n_sum", "sum_ns_sum")
    return {row["host"]: tuple(row[name] for name in names) for row in sums.to_pylist()}


def _both(root: Path, version_2: Callable[[], None]) -> None:
    """Write a flush of version 1, and one of version 2 of another host."""
    RollupMaker().write(root, minutes=5)
    version_2()
    write(root, "mail2", _with_spins(RollupMaker(host="mail2"), 0, 5))


def _with_spins(maker: RollupMaker, first: int, minutes: int) -> dict:
    tables = maker.tables(first, minutes)
    tables["calls"].pop("spins", None)
    return tables | {"calls": tables["calls"] | {"spins": [7] * len(tables["calls"]["n"])}}
