"""Retention removes the oldest days, whole, never the current one, and says what it removed."""

from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pytest
from spoolscope_testing.rollups import RollupMaker

from spoolscope.traces.errors import SpoolscopeError
from spoolscope.traces.rollups.files import Rollups
from spoolscope.traces.rollups.names import MARKER
from spoolscope.traces.rollups.retention import AGE, SIZE, retain

NOW = datetime(2026, 3, 10, 12, tzinfo=UTC)
TODAY = NOW.date()


def written(root: Path, days_ago: int, host: str = "mail1") -> date:
    """Write two minutes of a day; the maker's are all alike, so days have equal sizes."""
    day = TODAY - timedelta(days=days_ago)
    start_s = int(datetime(day.year, day.month, day.day, 12, tzinfo=UTC).timestamp())
    RollupMaker(host, f"r{days_ago}", start_s, calls=2).write(root, 2, in_flush=1)
    return day


def left(root: Path) -> list[tuple[str, int]]:
    flushes = {(flush.host, (TODAY - flush.day).days) for flush in Rollups(root).flushes}
    return sorted(flushes)


def total(root: Path) -> int:
    return sum(file.stat().st_size for file in root.rglob("*.parquet"))


def test_days_beyond_the_age_go(tmp_path: Path) -> None:
    days = [written(tmp_path, ago) for ago in (9, 8, 7, 6, 0)]
    before = total(tmp_path)
    done = retain(tmp_path, days=7, now=NOW)
    assert done.removed == [("mail1", days[0], AGE), ("mail1", days[1], AGE)]
    assert left(tmp_path) == [("mail1", 0), ("mail1", 6), ("mail1", 7)]
    assert done.files == 16
    assert done.left_bytes == total(tmp_path) == before - done.n_bytes
    assert retain(tmp_path, days=7, now=NOW).removed == []


def test_the_oldest_days_of_all_hosts_go_until_the_rest_fits(tmp_path: Path) -> None:
    for host in ("mail1", "mail2"):
        for ago in (3, 2, 1, 0):
            written(tmp_path, ago, host)
    quota = total(tmp_path) * 7 // 10
    done = retain(tmp_path, quota_bytes=quota, now=NOW)
    assert {why for _, _, why in done.removed} == {SIZE}
    assert total(tmp_path) <= quota
    assert {ago for _, ago in left(tmp_path)} == {0, 1, 2}
    days = sorted(((TODAY - day).days, host) for host, day, _ in done.removed)
    assert days == [(2, "mail1"), (3, "mail1"), (3, "mail2")]


def test_the_current_day_stays_whatever_the_quota(tmp_path: Path) -> None:
    written(tmp_path, 1)
    written(tmp_path, 0)
    done = retain(tmp_path, quota_bytes=1, now=NOW)
    assert left(tmp_path) == [("mail1", 0)]
    assert done.left_bytes > 1


def test_a_clock_that_jumped_removes_nothing_by_age(tmp_path: Path) -> None:
    for ago in (2, 1, 0):
        written(tmp_path, ago)
    done = retain(tmp_path, days=90, now=NOW + timedelta(days=4000))
    assert done.removed == []
    assert done.refused == "the clock says 2037-02-20, and the last day that is over is 2026-03-10"
    assert len(left(tmp_path)) == 3
    # A clock in the past knows no days before it.
    assert retain(tmp_path, days=1, quota_bytes=1, now=NOW - timedelta(days=4000)).removed == []


def test_a_dry_run_says_the_same_and_removes_nothing(tmp_path: Path) -> None:
    for ago in (9, 8, 1):
        written(tmp_path, ago)
    before = sorted(tmp_path.rglob("*"))
    asked = retain(tmp_path, days=7, now=NOW, dry_run=True)
    assert sorted(tmp_path.rglob("*")) == before
    assert retain(tmp_path, days=7, now=NOW) == asked


def test_only_roll_ups_of_the_hosts_that_are_named_go(tmp_path: Path) -> None:
    for host in ("mail1", "mail2"):
        written(tmp_path, 9, host)
        written(tmp_path, 1, host)
    other = tmp_path / "schema=1/calls/host=mail1/notes.txt"
    other.write_text("mine")
    done = retain(tmp_path, days=7, hosts=["mail1"], now=NOW)
    assert [host for host, _, _ in done.removed] == ["mail1"]
    assert left(tmp_path) == [("mail1", 1), ("mail2", 1), ("mail2", 9)]
    assert other.read_text() == "mine"


def test_nothing_is_removed_outside_the_directory(tmp_path: Path) -> None:
    root, outside = tmp_path / "rollups", tmp_path / "outside"
    written(root, 1)
    outside.mkdir()
    (outside / "precious").write_text("x")
    day = root / f"schema=1/minutes/host=mail1/date={TODAY - timedelta(days=30)}"
    day.symlink_to(outside)
    written(root, 20)
    inner = next((root / "schema=1/calls/host=mail1").glob("date=2026-02-*"))
    (inner / "link.parquet").symlink_to(outside / "precious")
    with pytest.raises(OSError, match="not empty"):
        retain(root, days=7, now=NOW)
    assert (outside / "precious").read_text() == "x"
    with pytest.raises(SpoolscopeError, match="is no directory of this machine"):
        retain(tmp_path / "none", days=1)


def test_readers_see_no_part_of_a_day_that_is_being_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written(tmp_path, 9)
    written(tmp_path, 1)
    unlink, gone = Path.unlink, []

    def seen(path: Path, missing_ok: bool = False) -> None:
        unlink(path, missing_ok=missing_ok)
        gone.append(path.parents[2].name)
        whole = {flush.name for flush in Rollups(tmp_path).flushes}
        assert whole >= {"r1-00000000", "r1-00000001"}
        if MARKER not in gone:
            raise AssertionError("minutes goes first")

    monkeypatch.setattr(Path, "unlink", seen)
    assert retain(tmp_path, days=7, now=NOW).files == 8
    assert gone[:2] == [MARKER, MARKER]
