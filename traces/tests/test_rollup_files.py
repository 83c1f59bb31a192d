"""Roll-ups as files: flushes are whole or not visible, and a changed bit is an error."""

from dataclasses import replace
from datetime import date
from pathlib import Path

import pyarrow as pa
import pytest
from spoolscope_testing.rollups import RollupMaker

from spoolscope.traces.rollups.files import Rollups, write
from spoolscope.traces.rollups.names import MARKER
from spoolscope.traces.rollups.places import Place
from spoolscope.traces.rollups.schema import MEASURES, ROLLUPS
from spoolscope.traces.rollups.sealed import DamagedError, unsealed


def test_what_is_written_is_read(tmp_path: Path) -> None:
    maker = RollupMaker()
    maker.write(tmp_path)
    rollups = Rollups(tmp_path)
    for name, spec in ROLLUPS.items():
        columns = maker.tables(0, 20)[name]
        written = pa.table(columns).cast(spec.schema).sort_by("minute_s")
        table = rollups.read(name)
        assert set(table["host"].to_pylist()) == {"mail1"}
        keys = [(column, "ascending") for column in written.schema.names]
        assert table.drop_columns("host").cast(spec.schema).sort_by(keys) == written.sort_by(keys)


def test_a_flush_over_midnight_is_one_of_each_day(tmp_path: Path) -> None:
    flushes = RollupMaker().write(tmp_path, minutes=20, in_flush=20)
    assert [(flush.day, flush.name) for flush in flushes] == [
        (date(2026, 3, 1), "5ec0de-00000000"),
        (date(2026, 3, 2), "5ec0de-00000010"),
    ]
    assert Rollups(tmp_path, since=date(2026, 3, 2)).flushes == flushes[1:]
    assert Rollups(tmp_path, until=date(2026, 3, 1), hosts=["mail1"]).flushes == flushes[:1]
    assert Rollups(tmp_path, hosts=["mail2"]).flushes == []


def test_a_flush_that_is_written_again_changes_nothing(tmp_path: Path) -> None:
    maker = RollupMaker()
    maker.write(tmp_path)
    before = {file: file.stat().st_mtime_ns for file in tmp_path.rglob("*.parquet")}
    maker.write(tmp_path)
    assert {file: file.stat().st_mtime_ns for file in tmp_path.rglob("*.parquet")} == before


def test_a_flush_with_other_rows_is_refused(tmp_path: Path) -> None:
    RollupMaker().write(tmp_path)
    with pytest.raises(ValueError, match="is there with other rows"):
        RollupMaker(calls=30).write(tmp_path)


@pytest.mark.parametrize("files_written", range(len(ROLLUPS)))
def test_a_flush_is_visible_only_when_it_is_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files_written: int
) -> None:
    maker = RollupMaker()
    maker.write(tmp_path, minutes=5)
    left = iter([True] * files_written)
    put = Place.put

    def dying(self: Place, path: str, content: bytes, *, durable: bool) -> None:
        if not next(left, False):
            raise KeyboardInterrupt
        put(self, path, content, durable=durable)

    with monkeypatch.context() as patch:
        patch.setattr(Place, "put", dying)
        with pytest.raises(KeyboardInterrupt):
            write(tmp_path, "mail1", maker.tables(5, 5))
    rollups = Rollups(tmp_path)
    assert [flush.name for flush in rollups.flushes] == ["5ec0de-00000000"]
    assert len(rollups.listing.halves) == files_written
    write(tmp_path, "mail1", maker.tables(5, 5))
    assert len(Rollups(tmp_path).flushes) == 2
    assert Rollups(tmp_path).listing.halves == []


def test_rows_without_a_minute_are_refused(tmp_path: Path) -> None:
    tables = RollupMaker().tables(0, 2)
    tables["commits"]["dev"][0] = 7
    with pytest.raises(ValueError, match="commits has rows of"):
        write(tmp_path, "mail1", tables)


@pytest.mark.parametrize("host", ["../mail", "a/b", "", "a b", "-"])
def test_a_host_that_is_no_part_of_a_path_is_refused(tmp_path: Path, host: str) -> None:
    with pytest.raises(ValueError, match="cannot be part of a path"):
        write(tmp_path, host, RollupMaker().tables(0, 1))


@pytest.mark.parametrize("table", ROLLUPS)
def test_every_flipped_bit_is_found(tmp_path: Path, table: str) -> None:
    flush = RollupMaker(calls=3).write(tmp_path, minutes=1)[0]
    marker = (tmp_path / flush.path(MARKER)).read_bytes()
    _, seal = unsealed(marker, flush)
    content = (tmp_path / flush.path(table)).read_bytes()
    for at in range(0, len(content), 7):
        changed = bytearray(content)
        changed[at] ^= 1 << at % 8
        with pytest.raises(DamagedError):
            unsealed(bytes(changed), flush) if table == MARKER else seal.check(
                table, bytes(changed)
            )


def test_a_file_that_is_cut_off_is_damaged(tmp_path: Path) -> None:
    flush = RollupMaker(calls=3).write(tmp_path, minutes=1)[0]
    content = (tmp_path / flush.path(MARKER)).read_bytes()
    with pytest.raises(DamagedError, match="is damaged"):
        unsealed(content[:-1], flush)


@pytest.mark.parametrize("copy", [{"host": "mail2"}, {"name": "c0ffee-00000000"}])
def test_a_copy_under_another_name_is_found(tmp_path: Path, copy: dict[str, str]) -> None:
    flush = RollupMaker(calls=3).write(tmp_path, minutes=1)[0]
    content = (tmp_path / flush.path(MARKER)).read_bytes()
    with pytest.raises(DamagedError, match="a copy of 5ec0de-00000000 of mail1"):
        unsealed(content, replace(flush, **copy))


def test_files_of_others_and_newer_versions_are_counted(tmp_path: Path) -> None:
    RollupMaker().write(tmp_path, minutes=1)
    (tmp_path / "schema=1/calls/notes.txt").write_text("mine")
    (tmp_path / "schema=9").mkdir()
    (tmp_path / "schema=1/minutes").rename(tmp_path / "schema=9/minutes")
    rollups = Rollups(tmp_path)
    assert (rollups.flushes, rollups.listing.newer) == ([], {9: 1})
    assert rollups.listing.foreign == ["schema=1/calls/notes.txt"]
    assert len(rollups.listing.halves) == 3


def test_what_a_recorder_has_in_work_is_no_foreign_file(tmp_path: Path) -> None:
    RollupMaker().write(tmp_path, minutes=1)
    for name in ("windows-20261129T094810Z/frozen-000001/meta.json",
                 "windows-20261129T094810Z/captures/about.json",
                 ".minutes-5ec0de/minute-00000001.json"):  # fmt: skip
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).touch()
    listing = Rollups(tmp_path).listing
    assert (listing.foreign, listing.drafts) == ([], [])


def test_measures_are_columns() -> None:
    names = {column.name for spec in ROLLUPS.values() for column in spec.columns}
    assert set(MEASURES) < names
