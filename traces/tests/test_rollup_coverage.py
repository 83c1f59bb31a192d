"""Bad roll-ups: each trouble is found, counted and stated, and numbers leave it out."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from spoolscope_testing.rollups import DEV, START_S, RollupMaker

from spoolscope.traces.rollups.contract import unequal
from spoolscope.traces.rollups.coverage import Coverage, examine
from spoolscope.traces.rollups.files import Rollups, write
from spoolscope.traces.rollups.names import MARKER, Flush
from spoolscope.traces.rollups.places import Place
from spoolscope.traces.rollups.schema import ROLLUPS

NOW_S = START_S + 86_400


def _examined(root: Path, *, deep: bool = True, now_s: float = NOW_S) -> Coverage:
    return examine(Rollups(root), deep=deep, now_s=now_s)


def _counts(coverage: Coverage) -> dict[str, int]:
    return {finding.kind: finding.n for finding in coverage.findings}


def test_nothing_is_wrong_with_what_the_maker_makes(tmp_path: Path) -> None:
    RollupMaker().write(tmp_path)
    coverage = _examined(tmp_path)
    assert coverage.findings == ()
    assert coverage.complete
    host = coverage.hosts[0]
    assert (host.first_s, host.last_s, host.minutes) == (START_S, START_S + 20 * 60, 20)
    assert (host.share, host.recorders, host.calls) == (1.0, 1, 2000)
    assert unequal(coverage.sound.read("calls"), coverage.sound.read("minutes")) == 0


def test_a_sum_that_is_wrong_by_one_is_found(tmp_path: Path) -> None:
    tables = RollupMaker().tables(0, 5)
    tables["calls"]["sum_ns"][7] += 1
    write(tmp_path, "mail1", tables)
    assert _counts(_examined(tmp_path)) == {"sums": 1}
    assert _counts(_examined(tmp_path, deep=False)) == {}


def _cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-1])


def _empty(file: Path) -> None:
    file.write_bytes(b"")


def _flip(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[len(content) // 3] ^= 4
    file.write_bytes(bytes(content))


@pytest.mark.parametrize("table", ROLLUPS)
@pytest.mark.parametrize("damage", [_cut, _empty, _flip, Path.unlink])
def test_a_damaged_flush_is_left_out(
    tmp_path: Path, table: str, damage: Callable[[Path], None]
) -> None:
    flushes = RollupMaker().write(tmp_path)
    damage(tmp_path / flushes[1].path(table))
    coverage = _examined(tmp_path)
    if (table, damage) == (MARKER, Path.unlink):
        assert _counts(coverage) == {"half-written": 3, "missing": 5}
    else:
        assert _counts(coverage) == {"damaged": 1, "missing": 5}
        assert flushes[1].path(MARKER) in coverage.findings[0].examples[0]
    assert coverage.sound.flushes == [flushes[0], *flushes[2:]]
    assert coverage.hosts[0].share == 15 / 20
    if damage is not _flip or table == MARKER:
        assert _counts(_examined(tmp_path, deep=False)) == _counts(coverage)


def test_losses_and_holes_are_counted(tmp_path: Path) -> None:
    RollupMaker(minute_columns={"lost": 3}).write(tmp_path)
    for table in ROLLUPS:
        for file in (tmp_path / "schema=1" / table).rglob("*-00000005.parquet"):
            file.unlink()
    coverage = _examined(tmp_path)
    assert _counts(coverage) == {"lost": 45, "missing": 5}
    assert not coverage.complete
    assert coverage.findings[0].examples == ("mail1: 45",)


def test_a_clock_that_jumps_is_found_with_and_without_the_recorders_word(tmp_path: Path) -> None:
    maker = RollupMaker()
    maker.write(tmp_path, minutes=5)
    hour_later = replace(maker, start_s=START_S + 3600)
    write(tmp_path, "mail1", hour_later.tables(5, 5))
    coverage = _examined(tmp_path)
    assert _counts(coverage) == {"clock": 1}
    assert coverage.hosts[0].largest_step_ns == 3_600_000_000_000
    assert coverage.complete
    stated = replace(maker, host="mail2", minute_columns={"clock_step_ns": -2_000_000_000})
    stated.write(tmp_path, minutes=5)
    assert _examined(tmp_path).hosts[1].largest_step_ns == -2_000_000_000


def test_a_step_that_is_stated_counts_once(tmp_path: Path) -> None:
    """The time of the next minute shows it, too."""
    for seq in range(6):
        stated = {"clock_step_ns": -3600 * 10**9 if seq == 3 else 0}
        back_s = 3600 if seq > 3 else 0
        maker = RollupMaker(start_s=START_S - back_s, minute_columns=stated)
        write(tmp_path, "mail1", maker.tables(seq, 1))
    assert _counts(_examined(tmp_path)) == {"clock": 1}


@pytest.mark.parametrize("stopped_s", [60, 180])
def test_a_recorder_that_was_stopped_has_one_long_minute(tmp_path: Path, stopped_s: int) -> None:
    for seq in range(6):
        late_s, own_s = (stopped_s if seq > 3 else 0), 60 + (stopped_s if seq == 3 else 0)
        columns = {"covered_ns": own_s * 10**9}
        maker = RollupMaker(start_s=START_S + late_s, minute_columns=columns)
        write(tmp_path, "mail1", maker.tables(seq, 1))
    coverage = _examined(tmp_path)
    assert coverage.findings == ()
    assert coverage.hosts[0].share == 1.0


def test_minutes_of_a_clock_without_a_battery_are_no_part_of_the_time(tmp_path: Path) -> None:
    RollupMaker().write(tmp_path)
    RollupMaker(recorder_id="c0ffee", start_s=60).write(tmp_path, minutes=3)
    coverage = _examined(tmp_path)
    assert _counts(coverage) == {"astray": 3}
    assert not coverage.complete
    host = coverage.hosts[0]
    assert (host.first_s, host.share, host.minutes) == (START_S, 1.0, 23)


def test_a_clock_that_is_set_back_covers_minutes_twice(tmp_path: Path) -> None:
    maker = RollupMaker()
    maker.write(tmp_path, minutes=5)
    write(tmp_path, "mail1", replace(maker, start_s=START_S - 300).tables(5, 5))
    assert _counts(_examined(tmp_path)) == {"twice": 5, "clock": 1}


def test_two_machines_with_one_host_name_are_rivals(tmp_path: Path) -> None:
    RollupMaker().write(tmp_path)
    RollupMaker(recorder_id="c0ffee").write(tmp_path, minutes=10)
    assert _counts(_examined(tmp_path)) == {"twice": 10, "rivals": 10}


def test_two_machines_with_spools_of_different_devices_are_rivals(tmp_path: Path) -> None:
    RollupMaker().write(tmp_path)
    other = RollupMaker(recorder_id="c0ffee", dev=DEV + 1, minute_columns={"boot_id": "other"})
    other.write(tmp_path, minutes=10)
    coverage = _examined(tmp_path)
    assert _counts(coverage) == {"rivals": 10}
    assert coverage.hosts[0].share == 1.0


def test_two_recorders_of_one_machine_cover_its_time_once(tmp_path: Path) -> None:
    RollupMaker().write(tmp_path)
    RollupMaker(recorder_id="c0ffee", dev=DEV + 1).write(tmp_path, minutes=10)
    coverage = _examined(tmp_path)
    assert coverage.findings == ()
    assert coverage.hosts[0].share == 1.0


def test_a_recorder_that_is_started_again_is_no_rival(tmp_path: Path) -> None:
    RollupMaker().write(tmp_path, minutes=5)
    RollupMaker(recorder_id="c0ffee", start_s=START_S + 300).write(tmp_path, minutes=5)
    coverage = _examined(tmp_path)
    assert coverage.findings == ()
    assert coverage.hosts[0].recorders == 2


def test_minutes_of_the_future_are_found(tmp_path: Path) -> None:
    RollupMaker().write(tmp_path)
    assert _counts(_examined(tmp_path, now_s=START_S + 10 * 60 + 1)) == {"future": 9}


def test_a_copy_of_another_host_is_left_out(tmp_path: Path) -> None:
    RollupMaker().write(tmp_path)
    for table in ROLLUPS:
        place = tmp_path / "schema=1" / table
        (place / "host=mail1").rename(place / "host=mail9")
    coverage = _examined(tmp_path)
    assert _counts(coverage) == {"damaged": 4}
    assert coverage.sound.flushes == []
    assert coverage.hosts == ()


def test_newer_versions_and_files_of_others_are_counted(tmp_path: Path) -> None:
    RollupMaker().write(tmp_path, minutes=5)
    RollupMaker(host="mail2").write(tmp_path / "new", minutes=5)
    (tmp_path / "new/schema=1").rename(tmp_path / "schema=2")
    (tmp_path / "schema=1/calls/notes.txt").write_text("mine")
    assert _counts(_examined(tmp_path)) == {"newer": 4, "foreign": 1}


def test_spools_of_one_recorder_share_its_minutes(tmp_path: Path) -> None:
    both = RollupMaker().tables(0, 5)
    for name, columns in RollupMaker(dev=DEV + 1).tables(0, 5).items():
        for column, values in columns.items():
            both[name][column] += values
    write(tmp_path, "mail1", both)
    coverage = _examined(tmp_path)
    assert coverage.findings == ()
    assert (coverage.hosts[0].minutes, coverage.hosts[0].share) == (5, 1.0)


def test_random_garbage_is_damaged(tmp_path: Path) -> None:
    flush: Flush = RollupMaker().write(tmp_path, minutes=5)[0]
    random = np.random.default_rng(3)
    for size in (0, 1, 8, 100, 5000):
        (tmp_path / flush.path(MARKER)).write_bytes(random.bytes(size) + b"PAR1")
        assert _counts(_examined(tmp_path)) == {"damaged": 1}


def test_a_draft_of_a_killed_writer_is_not_counted(tmp_path: Path) -> None:
    flush = RollupMaker().write(tmp_path, minutes=5)[0]
    file = tmp_path / flush.path("calls")
    (file.parent / f".{file.name}.5a5a").write_bytes(b"PAR1")
    assert _examined(tmp_path).findings == ()
    assert isinstance(Rollups(tmp_path).place, Place)
