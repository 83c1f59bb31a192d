"""Day sums beside roll-ups that come late, are merged or are removed: no row is lost or doubled."""

import shutil
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from fleet_answers import differing, results
from spoolscope_testing.rollups import START_S, RollupMaker

from spoolscope.analysis.fleet import day_files, sources
from spoolscope.traces.errors import SpoolscopeError
from spoolscope.traces.rollups.compaction import compact
from spoolscope.traces.rollups.coverage import examine

pytestmark = [
    pytest.mark.usefixtures("ibis"),
    # Ibis 12 calls what DuckDB 2 has deprecated.
    pytest.mark.filterwarnings("ignore:.*fetch_arrow_table:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:.*fetch_record_batch:DeprecationWarning"),
]
DAY = "2026-03-01"
START = START_S - 3600


@pytest.fixture(scope="module")
def duckdb() -> Iterator[Any]:
    from spoolscope.analysis.fleet.engines import engine

    started = engine("duckdb")
    yield started
    started.close()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for number in range(4):
        maker(number).write(tmp_path / "fleet", minutes=6, in_flush=2)
    return tmp_path / "fleet"


def maker(number: int) -> RollupMaker:
    return RollupMaker(host=f"mail{number}", recorder_id=f"r{number}", start_s=START, calls=2)


def sum_days(root: Path, engine: Any) -> Any:
    from spoolscope.analysis.fleet.day_sums import sum_days

    return sum_days(str(root), engine)


def calls(root: Path, engine: Any) -> dict[str, int]:
    rows = results(root, engine, ["coverage"])["coverage"].to_pylist()
    return {row["host"]: row["calls"] for row in rows}


def remove(root: Path, host: str) -> None:
    for place in root.glob(f"schema=1/*/host={host}"):
        shutil.rmtree(place)


def test_hosts_whose_roll_ups_were_removed_stay_in_the_sums(root, duckdb):
    sum_days(root, duckdb)
    whole = calls(root, duckdb)
    before = results(root, duckdb)
    remove(root, "mail0")
    remove(root, "mail1")
    assert sum_days(root, duckdb).dates == []
    assert differing(before, results(root, duckdb)) == []
    RollupMaker(host="mail9", recorder_id="late", start_s=START, calls=2).write(root, 2, 2)
    with_late = {**whole, "mail9": 20}
    assert calls(root, duckdb) == with_late
    done = sum_days(root, duckdb)
    assert (done.dates, done.problems) == ([DAY], [])
    assert calls(root, duckdb) == with_late
    assert sources.opened(str(root), duckdb).problems == []
    for host in ("mail2", "mail3", "mail9"):
        remove(root, host)
    assert calls(root, duckdb) == with_late


def test_what_comes_after_others_were_removed_is_named_and_takes_nothing_away(root, duckdb):
    sum_days(root, duckdb)
    whole = calls(root, duckdb)
    remove(root, "mail0")
    late = replace(maker(0), recorder_id="late", start_s=START + 1200)
    late.write(root, 2, 2)
    for answers in (sources.opened(str(root), duckdb).problems, sum_days(root, duckdb).problems,
                    sources.opened(str(root), duckdb).problems):  # fmt: skip
        (problem,) = answers
        assert problem.startswith(f"{DAY}: Flushes that came after others of their host and day")
        assert "host=mail0/date=2026-03-01/late-00000000.parquet" in problem
    assert calls(root, duckdb) == whole
    assert sum_days(root, duckdb).dates == []


def test_sums_that_do_not_name_their_flushes_keep_what_is_gone(root, duckdb, monkeypatch):
    with monkeypatch.context() as earlier:
        earlier.setattr(day_files, "_TABLES", "")
        text = day_files.DayFiles.text
        unnamed = lambda day: text(replace(day, recorded=None))  # noqa: E731
        earlier.setattr(day_files.DayFiles, "text", unnamed)
        sum_days(root, duckdb)
    whole = calls(root, duckdb)
    remove(root, "mail0")
    for _ in range(2):
        assert calls(root, duckdb) == whole
        sum_days(root, duckdb)
    late = replace(maker(3), recorder_id="late", start_s=START + 1200)
    late.write(root, 2, 2)
    sum_days(root, duckdb)
    assert calls(root, duckdb) == {**whole, "mail3": whole["mail3"] + 20}


def test_merged_roll_ups_are_the_same_rows(root, duckdb, monkeypatch):
    sum_days(root, duckdb)
    before = results(root, duckdb)
    compact(root, until=date(2026, 3, 9), hosts=["mail0", "mail1"])
    compact(root, until=date(2026, 3, 9), by_hour=True)
    source = sources.opened(str(root), duckdb)
    assert (source.summed, source.problems) == (True, [])
    assert (sum_days(root, duckdb).dates, sum_days(root, duckdb).kept) == ([], 1)
    assert differing(before, results(root, duckdb)) == []
    # It is noted which files have the rows: they are not opened again.
    monkeypatch.setattr(day_files, "minutes_of", None)
    assert sum_days(root, duckdb).dates == []


def test_roll_ups_that_are_in_no_sums_are_read_beside_them(root, duckdb):
    sum_days(root, duckdb)
    replace(maker(2), recorder_id="late", start_s=START + 1200).write(root, 2, 2)
    replace(maker(1), recorder_id="next", start_s=START + 86_400).write(root, 2, 2)
    beside = results(root, duckdb)
    assert sources.opened(str(root), duckdb).problems == []
    assert sum_days(root, duckdb).dates == [DAY, "2026-03-02"]
    ours, theirs = results(root, duckdb), beside
    for name in [name for name in ours if name.startswith("table ")]:
        keys = [(column, "ascending") for column in ours[name].schema.names]
        assert ours.pop(name).sort_by(keys) == theirs.pop(name).sort_by(keys)
    assert differing(ours, theirs) == []


def test_more_than_takes_seconds_is_not_read_beside_sums(root, duckdb, monkeypatch):
    sum_days(root, duckdb)
    whole = calls(root, duckdb)
    today_s = int(time.time()) // 86_400 * 86_400
    for run, start_s in (("next", START + 86_400), ("today", today_s)):
        replace(maker(1), recorder_id=run, start_s=start_s).write(root, 2, 2)
    monkeypatch.setattr(sources, "MOST_BYTES", 0)
    source = sources.opened(str(root), duckdb)
    assert [one.partition(":")[0] for one in source.problems] == [
        "1 days have roll-ups that are not in their sums (the first"
    ]
    today = time.strftime("%Y-%m-%d", time.gmtime(today_s))
    assert [one[:25] for one in source.notes] == [f"Roll-ups of {today} ar"[:25]]
    assert calls(root, duckdb) == whole


def test_a_compaction_meanwhile_is_one_clear_error(root, duckdb, monkeypatch):
    def and_then_merged(*args: Any, **options: Any) -> Any:
        found = examine(*args, **options)
        compact(root, until=date(2026, 3, 9))
        return found

    shutil.copytree(root, root.parent / "other")
    monkeypatch.setattr(sources, "examine", and_then_merged)
    with pytest.raises(SpoolscopeError, match=r"was removed while .* was read"):
        sources.opened(str(root), duckdb)
    root.rename(root.parent / "done")
    (root.parent / "other").rename(root)
    monkeypatch.setattr(day_files, "examine", and_then_merged)
    with pytest.raises(SpoolscopeError, match=r"was removed while .* was read"):
        sum_days(root, duckdb)
    assert sum_days(root, duckdb).dates == [DAY]


def test_names_of_flushes_are_short_and_exact():
    runs = {"a-b": [0, 1, 2, 3, 10, 20, 30], "c": [7]}
    names = {f"{run}-{number:08d}" for run, own in runs.items() for number in own}
    names |= {"odd", "c-9", "c-123456789"}
    short = day_files.packed(names)
    assert day_files.unpacked(short) == names
    assert short[2:] == ["odd", ["a-b", 0, 1, 4], ["a-b", 10, 10, 3], ["c", 7, 1, 1]]
    assert day_files.packed(f"r-{n:08d}" for n in range(1440)) == [["r", 0, 1, 1440]]
