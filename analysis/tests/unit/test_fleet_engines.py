"""Fleet expressions on DuckDB and on Spark: every cell of every table is the same."""

import shutil
from collections.abc import Iterator
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from fleet_answers import differing, results, small_fleet
from spoolscope_testing.rollups import START_S, RollupMaker

from spoolscope.analysis.fleet import day_files, sources
from spoolscope.traces.errors import SpoolscopeError
from spoolscope.traces.phases import unseen
from spoolscope.traces.rollups.compaction import compact
from spoolscope.traces.rollups.coverage import examine
from spoolscope.traces.rollups.files import Rollups, write

pytestmark = [
    pytest.mark.usefixtures("ibis"),
    pytest.mark.slow,
    # Ibis 12 calls what DuckDB 2 has deprecated; pyspark warns of pandas 3, which is not used.
    pytest.mark.filterwarnings("ignore:.*fetch_arrow_table:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:.*fetch_record_batch:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:PySpark does not yet:FutureWarning"),
]


@pytest.fixture(scope="module")
def rollups(tmp_path_factory) -> Path:
    return small_fleet(tmp_path_factory.mktemp("fleet") / "rollups")


@pytest.fixture(scope="module")
def duckdb() -> Iterator[Any]:
    from spoolscope.analysis.fleet.engines import engine

    started = engine("duckdb")
    yield started
    started.close()


# Each query runs once, so that its optimisation by the Java runtime takes longer than itself.
SPARK = """
spark.default.parallelism 1
spark.driver.extraJavaOptions -XX:TieredStopAtLevel=1 -XX:+UseSerialGC
"""


def test_every_expression_is_the_same_on_spark(rollups, duckdb, require, tmp_path, monkeypatch):
    """One session for all: it takes most of the time to start."""
    try:
        import pyspark  # noqa: F401
    except ImportError:
        require("pyspark", "no pyspark: pip install -e .[spark]")
    if not shutil.which("java"):
        require("java", "no Java: apt-get install default-jre-headless")
    from spoolscope.analysis.fleet.day_sums import sum_days
    from spoolscope.analysis.fleet.engines import engine

    ours = results(rollups, duckdb)
    assert len(ours) > 15
    (tmp_path / "spark-defaults.conf").write_text(SPARK)
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    spark = engine("local[2]")
    try:
        assert differing(ours, results(rollups, spark)) == []
        summed = tmp_path / "summed"
        shutil.copytree(rollups, summed)
        sum_days(str(summed), duckdb, unseen)
        # This day is not whole then: its roll-ups are read beside the sums of the other one.
        (summed / "days=1/days/date=2026-03-02/all.parquet").unlink()
        of_days = {
            name: spark.rows(expression)
            for name, expression in sources.opened(str(summed), spark).tables.items()
        }
    finally:
        spark.close()
    for name, table in of_days.items():
        key = [(column, "ascending") for column in table.schema.names]
        assert table.sort_by(key).to_pydict() == ours[f"table {name}"].sort_by(key).to_pydict()


def test_sums_are_those_of_the_roll_ups(rollups, duckdb):
    made = results(rollups, duckdb)
    calls = Rollups(rollups).read("calls")
    for name, table in (
        ("sums", calls),
        ("spread", calls.filter(pa.compute.field("cause") == "call")),
    ):
        assert sum(made[f"table {name}"]["n"].to_pylist()) == sum(table["n"].to_pylist())
    parts = made["table sums"]["sum_ns"].to_pylist()
    assert sum(parts) == sum(calls["sum_ns"].to_pylist())
    days = {(row["host"], row["date"]): row for row in made["table days"].to_pylist()}
    assert days["mail2", "2026-03-01"]["holes"] == 3
    assert days["mail1", "2026-03-01"]["holes"] == 0
    assert days["mail2", "2026-03-02"]["holes"] == 3
    assert 0 not in made["conditions"]["dev"].to_pylist() + made["causes_by_day"]["dev"].to_pylist()
    shown = {row["host"]: row for row in made["coverage"].to_pylist()}
    # Two spools of one host: the time is covered once, calls are those of both.
    assert shown["mail1"]["covered_ns"] == 2 * 9 * 60 * 10**9
    assert shown["mail1"]["calls"] == 21 * 125 - 3 * 25
    assert {row["host"] for row in days.values()} == {"mail1", "mail2", "0017"}


def covered_hosts(where: Path, engine: Any) -> dict[str, dict[str, Any]]:
    rows = results(where, engine, ["coverage"])["coverage"].to_pylist()
    return {row["host"]: row for row in rows}


def test_holes_over_midnight_are_found_from_roll_ups_and_from_day_sums(duckdb, tmp_path):
    from spoolscope.analysis.fleet.day_sums import sum_days

    maker = RollupMaker(calls=2)
    for first in (0, 500):  # numbers 5 to 499 are lost, of which 5 to 9 are before midnight
        write(tmp_path, maker.host, maker.tables(first, 5))
    (lost,) = examine(Rollups(tmp_path)).findings
    assert (lost.kind, lost.n) == ("missing", 495)
    assert covered_hosts(tmp_path, duckdb)["mail1"]["holes"] == 495
    sum_days(str(tmp_path), duckdb)
    assert sources.opened(str(tmp_path), duckdb).summed
    assert covered_hosts(tmp_path, duckdb)["mail1"]["holes"] == 495


def test_time_is_covered_once_whatever_number_the_device_has(duckdb, tmp_path):
    """The device has another number after each of two starts, and at the end there are two."""
    for run in range(3):
        maker = RollupMaker(recorder_id=f"r{run}", start_s=START_S - 3600, dev=run + 1, calls=2)
        write(tmp_path, maker.host, maker.tables(8 * run, 8))
    last = RollupMaker(recorder_id="r3", start_s=START_S - 3600, calls=2)
    tables = [replace(last, dev=dev).tables(24, 6) for dev in (8, 9)]
    both = {
        name: {column: values + tables[1][name][column] for column, values in rows.items()}
        for name, rows in tables[0].items()
    }
    write(tmp_path, last.host, both)
    host = covered_hosts(tmp_path, duckdb)["mail1"]
    assert (host["minutes"], host["covered_ns"]) == (30, 30 * 60 * 10**9)


def test_day_sums_of_an_earlier_version_count_and_are_made_again(
    rollups, duckdb, tmp_path, monkeypatch
):
    from spoolscope.analysis.fleet.day_sums import sum_days

    def found() -> list[tuple[Any, ...]]:
        rows = covered_hosts(root, duckdb).values()
        return [tuple(row[name] for name in ("holes", "covered_ns", "calls")) for row in rows]

    root = tmp_path / "rollups"
    shutil.copytree(rollups, root)
    with monkeypatch.context() as earlier:
        earlier.setattr(day_files, "_TABLES", "")
        sum_days(str(root), duckdb)
    whole = found()
    away = (root / "schema=1").rename(tmp_path / "away")
    for below in ("runs/date=2026-03-01", "runs"):
        shutil.rmtree(root / "days=1" / below)
        assert found() == whole
    away.rename(root / "schema=1")
    assert found() == whole
    assert len(sum_days(str(root), duckdb).dates) == 2
    assert sources.opened(str(root), duckdb).problems == []
    assert found() == whole


def test_a_quantile_lies_in_its_bucket(rollups, duckdb):
    """The second source are the buckets themselves, sorted and counted in Python."""
    made = results(rollups, duckdb)
    counts: dict[int, int] = {}
    for row in made["table spread"].to_pylist():
        if row["syscall"] == "fsync" and row["host"] == "mail1":
            counts[row["bucket"]] = counts.get(row["bucket"], 0) + row["n"]
    every = sorted(bucket for bucket, n in counts.items() for _ in range(n))
    for q in (500, 990):
        found = {row["host"]: row for row in made[f"hosts_{q}"].to_pylist()}["mail1"]
        rank = -(-len(every) * q // 1000) - 1
        assert (found["bucket"], found["n"]) == (every[rank], len(every))


def test_days_are_summed_once_and_again_when_they_change(rollups, duckdb, tmp_path):
    from spoolscope.analysis.fleet.day_sums import sum_days

    root = tmp_path / "rollups"
    shutil.copytree(rollups, root)
    first = sum_days(str(root), duckdb)
    assert (list(first.dates), first.kept) == (["2026-03-01", "2026-03-02"], 0)
    assert sum_days(str(root), duckdb).dates == []
    assert Rollups(root).listing.foreign == []
    late = RollupMaker(host="mail9", recorder_id="late", start_s=START_S - 3600)
    late.write(root, minutes=3, in_flush=3)
    assert "mail9" in covered_hosts(root, duckdb)
    assert list(sum_days(str(root), duckdb).dates) == ["2026-03-01"]
    source = sources.opened(str(root), duckdb)
    assert source.summed
    assert source.problems == []
    hosts = set(duckdb.rows(source.tables["days"])["host"].to_pylist())
    assert hosts == {"mail1", "mail2", "0017", "mail9"}


def test_hours_give_the_same_answers_as_minutes(rollups, duckdb, tmp_path):
    root = tmp_path / "rollups"
    shutil.copytree(rollups, root)
    done = compact(root, until=date(2026, 3, 9), by_hour=True)
    assert done.rows_after < done.rows_before
    assert differing(results(rollups, duckdb), results(root, duckdb)) == []


def test_what_is_damaged_is_left_out_and_stated(rollups, duckdb, tmp_path):
    from spoolscope.analysis.fleet.day_sums import sum_days

    root = tmp_path / "rollups"
    shutil.copytree(rollups, root)
    cut, flipped = sorted(root.glob("schema=1/calls/host=0017/date=2026-03-01/*"))[:2]
    cut.write_bytes(cut.read_bytes()[:-100])
    half = next(root.glob("schema=1/minutes/host=mail1/date=2026-03-02/*"))
    half.unlink()
    content = bytearray(flipped.read_bytes())
    content[len(content) // 2] ^= 1
    direct = sources.opened(str(root), duckdb)
    assert any("Damaged flushes: 1" in problem for problem in direct.problems)
    flipped.write_bytes(content)
    done = sum_days(str(root), duckdb)
    assert any("Damaged flushes: 2" in problem for problem in done.problems)
    assert any("no whole flush" in problem for problem in done.problems)
    source = sources.opened(str(root), duckdb)
    assert len(source.problems) == len(done.problems)
    days = {(r["host"], r["date"]): r for r in duckdb.rows(source.tables["days"]).to_pylist()}
    assert days["0017", "2026-03-01"]["minutes"] == 3


def test_a_bucket_gives_the_same_answers(rollups, duckdb, monkeypatch):
    """The server is moto's, on loopback."""
    from spoolscope_testing.object_storage import object_storage

    from spoolscope.analysis.fleet.day_sums import sum_days
    from spoolscope.traces.rollups.sending import upload

    ours = results(rollups, duckdb)
    with object_storage() as storage:
        for name, value in storage.environment.items():
            monkeypatch.setenv(name, value)
        bucket = storage.bucket("fleet")
        upload(rollups, bucket)
        assert differing(ours, results(bucket, duckdb)) == []
        assert len(sum_days(bucket, duckdb).dates) == 2
        assert sources.opened(bucket, duckdb).summed
        theirs = results(bucket, duckdb)
    assert (
        differing(
            {n: t for n, t in ours.items() if "table" not in n},
            {n: t for n, t in theirs.items() if "table" not in n},
        )
        == []
    )


def test_a_place_without_roll_ups_is_an_error(duckdb, tmp_path):
    with pytest.raises(SpoolscopeError, match="no roll-ups"):
        sources.opened(str(tmp_path), duckdb)


def test_an_unknown_engine_is_an_error():
    from spoolscope.analysis.fleet.engines import engine

    with pytest.raises(SpoolscopeError, match="no engine is called trino"):
        engine("trino")
