"""Logs for fio: requests of a disk, and calls on files."""

import csv
import subprocess
from pathlib import Path

import pytest
from exporting import export
from spoolscope_testing.trace_builder import START

from spoolscope.export.fio_files import _names
from spoolscope.traces.errors import SpoolscopeError


def test_fio_gets_the_requests_of_the_busiest_disk_in_order(builder, tmp_path: Path) -> None:
    builder.call("fsync", 0)
    builder.block_io(1_000, dev=8 << 20, sector=8, bytes=4096)
    builder.block_io(5_000, dev=8 << 20, sector=16, bytes=8192, preflush=True, fua=True)
    builder.block_io(7_000, dev=8 << 20, bytes=0, preflush=True)
    builder.block_io(7_500, dev=8 << 20, op="flush", bytes=0)
    builder.block_io(9_000, dev=8 << 20, op="read", sector=2, bytes=512)
    builder.block_io(9_001, dev=8 << 20, op="discard", sector=0, bytes=1024)
    builder.block_io(2_000, dev=9 << 20, sector=1, parent_dev=8 << 20)  # the same, below
    builder.block_io(3_000, dev=3 << 20, sector=1)  # of another disk
    export(builder.write(), "fio", tmp_path / "out")
    assert (tmp_path / "out").read_text().splitlines() == [
        "fio version 3 iolog",
        "0 disk-8-0 add",
        "0 disk-8-0 open",
        "0 disk-8-0 write 4096 4096",
        "4 disk-8-0 sync 0 0",
        "4 disk-8-0 write 8192 8192",
        "4 disk-8-0 sync 0 0",
        "6 disk-8-0 sync 0 0",
        "8 disk-8-0 read 1024 512",
        "8 disk-8-0 trim 0 1024",
        "8 disk-8-0 close",
    ]


def test_a_block_trace_with_stages_alone_is_one_for_fio(builder, tmp_path: Path) -> None:
    for at_ns, op, rwbs, size in ((0, "write", "FWFS", 4096), (5000, "read", "RA", 512),
                                  (7000, "write", "FF", 0), (9000, "flush", "F", 0)):  # fmt: skip
        builder.add("block_stages", ts_ns=START + at_ns, dev=8 << 20, sector=8, bytes=size, op=op,
                    rwbs=rwbs, bios=1, merged=0, requeued=0, error=0, tid=1)  # fmt: skip
    export(builder.write(), "fio", tmp_path / "out")
    actions = [line.split()[2] for line in (tmp_path / "out").read_text().splitlines()[3:]]
    assert actions == ["sync", "write", "sync", "read", "sync", "close"]


def test_no_file_of_fio_has_the_name_made_for_another() -> None:
    paths = {1: "file-2", 2: "-x", 3: "file-4/a", 4: "x" * 201, 5: "a", 6: "a/b", 7: "a", 8: ""}
    names = _names(paths)
    assert names == {
        1: "file-1", 2: "file-2", 3: "file-3", 4: "file-4", 5: "file-5", 6: "a/b", 7: "file-7",
        8: "file-8",
    }  # fmt: skip


def test_fio_gets_calls_on_files_by_thread_and_the_others_are_counted(
    builder, tmp_path: Path
) -> None:
    regular, directory = 0o100600, 0o40700
    for call, tid, path, mode, facts in (
        ("openat", 1, "a b/c", regular, {"ret": 3}),
        ("openat", 1, "a b/c", regular, {"ret": 4}),
        ("write", 1, "a b/c", regular, {"offset": 5, "ret": 7}),
        ("write", 1, "a b", regular, {"offset": 0, "ret": 2}),  # was no directory then
        ("fdatasync", 1, "a b/c", regular, {"ret": 0}),
        ("close", 1, "a b/c", regular, {"ret": 0}),
        ("read", 1, "a b/c", regular, {"offset": 12, "ret": 0}),
        ("fsync", 1, "a b", directory, {"ret": 0}),
        ("rename", 1, "a b/c", regular, {"ret": 0}),
        ("pread64", 2, "x:2,S", regular, {"offset": 0, "ret": 9}),  # after thread 1
        ("fsync", 3, "x:2,S", regular, {"ret": 0}),  # beside it, without reads and writes
    ):
        at_ns = {1: len(builder.rows["syscalls"]) * 1000, 2: 50_000, 3: 50_001}[tid]
        builder.call(call, at_ns, 500, tid=tid, path=path, obj_mode=mode, **facts)
    export(builder.write(), "fio-files", out := tmp_path / "out")
    assert (out / "job-0001.log").read_text().splitlines() == [
        "fio version 3 iolog",
        "0 files/a_b/c add",
        "0 files/file-1 add",
        "0 files/x:2,S add",
        "0 files/a_b/c open",
        "2 files/a_b/c write 5 7",
        "3 files/file-1 open",
        "3 files/file-1 write 0 2",
        "4 files/a_b/c datasync 0 0",
        "7 files/a_b/c close",
        "7 files/file-1 close",
        "50 files/x:2,S open",
        "50 files/x:2,S read 0 9",
        "50 files/x:2,S close",
    ]
    assert "read_iolog=job-0001.log" in (out / "replay.fio").read_text()
    assert not (out / "job-0002.log").exists()
    rows = csv.DictReader((out / "unsaid.csv").read_text().splitlines())
    unsaid = {(row["call"], row["n"]) for row in rows}
    assert unsaid == {("read", "1"), ("fsync", "1"), ("rename", "1")}
    (tmp_path / "scratch").mkdir()
    subprocess.run(["sh", out / "prepare.sh", tmp_path / "scratch"], check=True)
    sizes = {file.name: file.stat().st_size for file in (tmp_path / "scratch").rglob("*")
             if file.is_file()}  # fmt: skip
    assert sizes == {"c": 12, "file-1": 2, "x:2,S": 9}


def test_fio_gets_files_of_an_import_that_knows_no_modes(builder, tmp_path: Path) -> None:
    for call, path, facts in (
        ("openat", "a", {"ret": 3}),
        ("write", "a", {"offset": 0, "ret": 7}),
        ("close", "a", {"ret": 0}),
        ("openat", "folder", {"ret": 3}),
        ("fsync", "folder", {"ret": 0}),
        ("openat", "b", {"ret": 3, "obj_mode": 0o100600}),
        ("close", "b", {"ret": 0}),
    ):
        at_ns = len(builder.rows["syscalls"]) * 1000
        builder.call(call, at_ns, 500, path=path, **{"obj_mode": None} | facts)
    export(builder.write(), "fio-files", out := tmp_path / "out")
    actions = (out / "job-0001.log").read_text().splitlines()[1:]
    assert [line.split()[1:3] for line in actions] == [
        [f"files/{file}", action]
        for file, action in (
            ("a", "add"), ("b", "add"), ("a", "open"), ("a", "write"), ("a", "close"),
            ("b", "open"), ("b", "close"),
        )
    ]  # fmt: skip
    assert (out / "unsaid.csv").read_text().count("not on a regular file") == 2


def test_no_disk_is_filled_at_the_word_of_a_trace(builder, tmp_path: Path) -> None:
    builder.call("pwrite64", 0, path="a", obj_mode=0o100600, offset=1 << 60, ret=7)
    export(builder.write(), "fio-files", out := tmp_path / "out")
    (scratch := tmp_path / "scratch").mkdir()
    words = ["sh", out / "prepare.sh", scratch]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert f"KiB free, and {(1 << 50) + 1} are needed" in done.stderr
    assert list(scratch.iterdir()) == []


def test_a_trace_without_requests_is_none_for_fio(builder, tmp_path: Path) -> None:
    builder.call("fsync", 0)
    with pytest.raises(SpoolscopeError, match="no block requests"):
        export(builder.write(), "fio", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_fio_gets_appends_where_they_went(builder, tmp_path: Path) -> None:
    """The position of a descriptor says nothing of a write that appends."""
    for call, path, facts in (
        ("openat", "log", {"ret": 3, "flags": 0o2001}),
        ("write", "log", {"offset": 0, "ret": 50, "obj_size": 1050}),
        ("write", "log", {"offset": 1050, "ret": 50, "obj_size": 1100}),
        ("write", "log", {"offset": 0, "ret": 50, "obj_size": None}),
        ("openat", "both", {"ret": 4, "flags": 0o2001}),
        ("openat", "both", {"ret": 5, "flags": 1}),
        ("write", "both", {"offset": 0, "ret": 50, "obj_size": 1050}),
    ):
        at_ns = len(builder.rows["syscalls"]) * 1000
        builder.call(call, at_ns, 500, path=path, **{"obj_mode": 0o100600} | facts)
    export(builder.write(), "fio-files", out := tmp_path / "out")
    actions = (out / "job-0001.log").read_text().splitlines()
    assert [line.split()[1:] for line in actions if " write " in line] == [
        ["files/log", "write", "1000", "50"],
        ["files/log", "write", "1050", "50"],
        ["files/both", "write", "0", "50"],
    ]
    assert "write,where it went is not known,1" in (out / "unsaid.csv").read_text()
