"""Compaction of roll-ups: sums stay, and a kill at any step leaves every row counted once."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import date
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest
from spoolscope_testing.rollups import START_S, RollupMaker

from spoolscope.traces.rollups.compaction import Compaction, compact, merged
from spoolscope.traces.rollups.coverage import examine
from spoolscope.traces.rollups.files import Rollups, write
from spoolscope.traces.rollups.names import MARKER, Flush
from spoolscope.traces.rollups.places import Place
from spoolscope.traces.rollups.schema import MEASURES, ROLLUPS

DAY = date(2026, 3, 1)
LATER = date(2026, 3, 9)
STEPS = 4 + 2 * 4
"""Files that a compaction of a day with two flushes writes and removes."""


def _sums(root: Path) -> dict[str, pa.Table]:
    """Return every sum by its keys, computed by grouping and not by the code of compaction."""
    found = {}
    for name in ROLLUPS:
        rows = Rollups(root).read(name)
        keys = [column for column in rows.schema.names if column not in MEASURES]
        measures = [(c, how) for c, how in MEASURES.items() if c in rows.schema.names]
        found[name] = (
            rows.group_by(keys).aggregate(measures).sort_by([(k, "ascending") for k in keys])
        )
    return found


def _files(root: Path) -> list[Path]:
    return sorted(path for path in root.rglob("*") if path.is_file())


def _again_and_check(root: Path, before: dict[str, pa.Table], days: int = 2) -> None:
    """Compact once more, and see that all is in one flush a day and nothing is left behind."""
    compact(root, until=LATER)
    assert _sums(root) == before
    assert len(Rollups(root).flushes) == days
    assert len(_files(root)) == days * len(ROLLUPS)
    assert examine(Rollups(root), deep=True, now_s=START_S + 86_400).findings == ()


def test_sums_are_the_same_to_the_nanosecond(tmp_path: Path) -> None:
    maker = RollupMaker()
    maker.write(tmp_path)
    # A recorder that was started again in a minute: rows with equal keys.
    write(
        tmp_path,
        "mail1",
        replace(maker, recorder_id="c0ffee", minute_columns={"covered_ns": 0}).tables(0, 5),
    )
    rows = sum(Rollups(tmp_path).read(name).num_rows for name in ROLLUPS)
    before = _sums(tmp_path)
    done = compact(tmp_path, until=LATER)
    assert (done.days, done.flushes, done.rows_before) == (2, 5, rows)
    assert done.rows_after < rows
    assert done.bytes_after < done.bytes_before
    assert done.rows_after == sum(Rollups(tmp_path).read(name).num_rows for name in ROLLUPS)
    assert done.bytes_after == sum(file.stat().st_size for file in _files(tmp_path))
    _again_and_check(tmp_path, before)


def test_a_second_run_changes_nothing(tmp_path: Path) -> None:
    RollupMaker().write(tmp_path)
    compact(tmp_path, until=LATER)
    before = {file: file.stat().st_mtime_ns for file in _files(tmp_path)}
    assert compact(tmp_path, until=LATER) == Compaction()
    assert {file: file.stat().st_mtime_ns for file in _files(tmp_path)} == before


def test_days_that_are_not_over_and_other_hosts_stay(tmp_path: Path) -> None:
    RollupMaker().write(tmp_path)
    RollupMaker(host="mail2").write(tmp_path)
    assert compact(tmp_path, until=DAY, hosts=["mail1"]).days == 1
    numbers = [(flush.host, flush.day.day, flush.merged) for flush in Rollups(tmp_path).flushes]
    assert numbers == [
        ("mail1", 1, True),
        *[("mail1", 2, False)] * 2,
        *[("mail2", 1, False)] * 2,
        *[("mail2", 2, False)] * 2,
    ]


def test_a_flush_that_comes_late_joins_the_merged_one(tmp_path: Path) -> None:
    maker = RollupMaker()
    maker.write(tmp_path)
    compact(tmp_path, until=LATER)
    late = replace(maker, recorder_id="c0ffee", start_s=START_S - 3600)
    late.write(tmp_path, minutes=5)
    before = _sums(tmp_path)
    _again_and_check(tmp_path, before)
    # The same flush once more, as a second upload would bring it: it is in the merged one.
    late.write(tmp_path, minutes=5)
    assert _sums(tmp_path) == before
    findings = examine(Rollups(tmp_path), now_s=START_S + 86_400).findings
    assert [(finding.kind, finding.n) for finding in findings] == [("merged", 1)]
    _again_and_check(tmp_path, before)


@pytest.mark.parametrize("steps", range(STEPS))
def test_a_stop_at_any_step_counts_every_row_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, steps: int
) -> None:
    before = _stopped(tmp_path, monkeypatch, steps)
    assert _sums(tmp_path) == before
    _again_and_check(tmp_path, before, days=1)


@pytest.mark.parametrize("steps", range(STEPS))
def test_a_stop_at_any_step_is_finished_by_one_that_leaves_merged_ones_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, steps: int
) -> None:
    before = _stopped(tmp_path, monkeypatch, steps, left_alone_s=-60)
    assert compact(tmp_path, until=LATER, left_alone_s=-60).damaged == {}
    assert _sums(tmp_path) == before
    assert len(_files(tmp_path)) == len(ROLLUPS)


def _stopped(
    root: Path, monkeypatch: pytest.MonkeyPatch, steps: int, left_alone_s: float | None = None
) -> dict[str, pa.Table]:
    """Return the sums of roll-ups of ten minutes, and stop their compaction at a step."""
    RollupMaker(calls=5).write(root, minutes=10)
    before = _sums(root)
    with monkeypatch.context() as patch:
        _stop_after(patch, steps, lambda: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            compact(root, until=LATER, left_alone_s=left_alone_s)
    return before


def test_there_are_no_more_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    RollupMaker(calls=5).write(tmp_path, minutes=10)
    _stop_after(monkeypatch, STEPS, lambda: pytest.fail("one more step"))
    compact(tmp_path, until=LATER)


def _stop_after(patch: pytest.MonkeyPatch, steps: int, stop: Callable[[], object]) -> None:
    left = iter(range(steps))
    for name in ("put", "remove"):
        real = getattr(Place, name)

        def step(self, *given, real=real, **named):
            if next(left, None) is None:
                stop()
            return real(self, *given, **named)

        patch.setattr(Place, name, step)


@pytest.mark.parametrize(("step", "writes"), [("fsync", 2), ("rename", 4)])
def test_a_kill_leaves_no_half_file(tmp_path: Path, step: str, writes: int) -> None:
    """Kill the process by SIGKILL before a draft is safe, or before it gets its name."""
    RollupMaker(calls=5).write(tmp_path, minutes=10)
    before = _sums(tmp_path)
    program = f"""
import os, pathlib, signal, sys
from datetime import date
from spoolscope.traces.rollups.compaction import compact
place = {"os" if step == "fsync" else "pathlib.Path"}
real, left = place.{step}, iter(range({writes} - 1))
def dying(*given):
    if next(left, None) is None:
        os.kill(os.getpid(), signal.SIGKILL)
    return real(*given)
place.{step} = dying
compact(sys.argv[1], until=date(2026, 3, 9))
"""
    killed = subprocess.run([sys.executable, "-c", program, tmp_path], timeout=60)
    assert killed.returncode == -signal.SIGKILL
    assert _sums(tmp_path) == before
    drafts = Rollups(tmp_path).listing.drafts
    for draft in drafts:
        two_days_ago = time.time() - 2 * 86_400
        os.utime(tmp_path / draft, (two_days_ago, two_days_ago))
    _again_and_check(tmp_path, before, days=1)


def test_damaged_flushes_stay_as_they_are(tmp_path: Path) -> None:
    flushes = RollupMaker().write(tmp_path, minutes=10, in_flush=2)
    file = tmp_path / flushes[1].path("calls")
    file.write_bytes(file.read_bytes()[:-9])
    done = compact(tmp_path, until=LATER)
    assert (done.flushes, list(done.damaged)) == (4, [flushes[1]])
    assert len(Rollups(tmp_path).flushes) == 2
    assert compact(tmp_path, until=LATER).flushes == 0
    assert file.exists()


@pytest.mark.parametrize("table", ROLLUPS)
def test_a_merged_flush_that_is_damaged_takes_nothing_with_it(tmp_path: Path, table: str) -> None:
    """The merged flush is cut off before those that it was made of were removed."""
    RollupMaker().write(tmp_path, minutes=10)
    before = _sums(tmp_path)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Place, "remove", lambda *_: None)
        compact(tmp_path, until=LATER)
    new = next(flush for flush in Rollups(tmp_path).flushes if flush.merged)
    file = tmp_path / new.path(table)
    file.write_bytes(file.read_bytes()[:-9])
    assert _sums(tmp_path) == before
    assert list(Rollups(tmp_path).listing.damaged) == [new]
    _again_and_check(tmp_path, before, days=1)


def test_measures_of_equal_keys_are_merged() -> None:
    keys = {"minute_s": [0, 0, 60], "dev": 3 * [1], "comm": 3 * ["a"], "unit": 3 * [""]}
    part = pa.table({**keys, "n": [1, 2, 4], "sum_ns": [10, 20, 40], "max_ns": [10, 15, 20]})
    rows = merged("commits", [part, part]).sort_by("minute_s")
    assert rows.select(["n", "sum_ns", "max_ns"]).to_pydict() == {
        "n": [6, 8], "sum_ns": [60, 80], "max_ns": [15, 20],
    }  # fmt: skip


def test_only_what_is_not_merged_yet_and_has_been_there_for_a_while(tmp_path: Path) -> None:
    def flush(recorder_id: str, minute: int, age_s: float) -> Flush:
        maker = RollupMaker(recorder_id=recorder_id, start_s=START_S - 60 * minute)
        (written,) = maker.write(tmp_path, minutes=1)
        at = time.time() - age_s
        os.utime(tmp_path / written.path("minutes"), (at, at))
        return written

    def flushes(*, merged: bool) -> list[Flush]:
        return [flush for flush in Rollups(tmp_path).flushes if flush.merged == merged]

    young = [flush("a", 1, 3600), flush("b", 2, 3600), flush("c", 3, 60)][-1:]
    before = _sums(tmp_path)
    assert compact(tmp_path, until=DAY, left_alone_s=900).flushes == 2
    assert (_sums(tmp_path), flushes(merged=False)) == (before, young)
    (first,) = flushes(merged=True)
    flush("c", 3, 1800)
    flush("d", 4, 3600)
    before = _sums(tmp_path)
    assert compact(tmp_path, until=DAY, left_alone_s=900).flushes == 2
    assert (_sums(tmp_path), flushes(merged=False)) == (before, [])
    assert first in flushes(merged=True)
    _again_and_check(tmp_path, before, days=1)


def test_a_flush_that_is_removed_meanwhile_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for minute, recorder_id in enumerate("abc", 1):
        maker = RollupMaker(recorder_id=recorder_id, start_s=START_S - 60 * minute)
        maker.write(tmp_path, minutes=1)
    gone = tmp_path / Rollups(tmp_path).flushes[0].path(MARKER)
    asked = Place.written_s

    def removed_then_asked(place: Place, path: str) -> float:
        gone.unlink(missing_ok=True)
        return asked(place, path)

    monkeypatch.setattr(Place, "written_s", removed_then_asked)
    assert compact(tmp_path, until=LATER, left_alone_s=-60).flushes == 2


def _of_hours(root: Path, minute: str) -> dict[str, list[tuple[object, ...]]]:
    """Return sums by DuckDB, given an expression for the time of a row."""
    found = {}
    for name, spec in ROLLUPS.items():
        rows = Rollups(root).read(name)
        asked = ["host", "minute_s" if name == MARKER else f"{minute} AS minute_s"]
        asked += [
            f"{MEASURES[c.name]}({c.name})" if c.name in MEASURES else c.name
            for c in spec.columns[1:]
        ]
        sql = f"SELECT {', '.join(asked)} FROM rows GROUP BY ALL ORDER BY ALL"
        found[name] = duckdb.from_arrow(rows).query("rows", sql).fetchall()
    return found


@pytest.mark.parametrize("merged_before", [False, True])
def test_sums_by_hour_are_those_of_the_minutes(tmp_path: Path, *, merged_before: bool) -> None:
    flushes = RollupMaker(calls=5).write(tmp_path, minutes=80)
    if merged_before:
        compact(tmp_path, until=LATER)
    before = _of_hours(tmp_path, "minute_s - minute_s % 3600")
    done = compact(tmp_path, until=LATER, by_hour=True)
    assert (done.days, done.flushes) == (2, 2 if merged_before else len(flushes))
    assert done.rows_after < done.rows_before
    assert _of_hours(tmp_path, "minute_s") == before
    # A second run changes nothing, with and without the option; what comes late joins.
    assert compact(tmp_path, until=LATER, by_hour=True) == Compaction()
    assert compact(tmp_path, until=LATER) == Compaction()
    late = RollupMaker(recorder_id="c0ffee", start_s=START_S - 3600)
    late.write(tmp_path, minutes=5)
    before = _of_hours(tmp_path, "minute_s - minute_s % 3600")
    assert compact(tmp_path, until=LATER).days == 1
    assert _of_hours(tmp_path, "minute_s") == before
    assert examine(Rollups(tmp_path), deep=True, now_s=START_S + 86_400).findings == ()


@pytest.mark.parametrize("steps", range(4 + 4))
def test_a_stop_at_any_step_to_hours_counts_every_row_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, steps: int
) -> None:
    RollupMaker(calls=5).write(tmp_path, minutes=10)
    compact(tmp_path, until=LATER)
    before = _of_hours(tmp_path, "minute_s - minute_s % 3600")
    with monkeypatch.context() as patch:
        _stop_after(patch, steps, lambda: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            compact(tmp_path, until=LATER, by_hour=True)
    assert _of_hours(tmp_path, "minute_s - minute_s % 3600") == before
    compact(tmp_path, until=LATER, by_hour=True)
    assert _of_hours(tmp_path, "minute_s") == before
    assert len(_files(tmp_path)) == len(ROLLUPS)
