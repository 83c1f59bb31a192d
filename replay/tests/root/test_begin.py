"""The state in which a replay begins: kept images, caches, and properties of the data."""

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from spoolscope.replay import images
from spoolscope.replay.candidates import parse
from spoolscope.replay.engine import Content, Engine
from spoolscope.replay.job import Begin
from spoolscope.replay.plan import build
from spoolscope.replay.run import replay
from spoolscope.replay.targets import SMALLEST_BYTES, prepared
from spoolscope.traces.trace import Trace

pytestmark = [pytest.mark.root, pytest.mark.steady]
REG, DIR = 0o100640, 0o040750
MIB = 1 << 20


@pytest.fixture
def trace(script, tmp_path) -> Path:
    """Return a trace of directories, files of 1 MiB, links, and a call that reads a file."""
    script.entry("box", ino=2, mode=DIR)
    for number in range(40):
        script.entry(f"box/m{number}", ino=100 + number, mode=REG, size=MIB, mtime_ns=10**18)
    script.entry("link", ino=100, mode=REG, size=MIB)
    script.call(10, 1, "openat", "box/m7", ret=3, flags=0, ino=107, obj_mode=REG, obj_size=MIB)
    script.call(10, 2, "read", "box/m7", ret=4096, base=0, fd=3, ino=107, obj_mode=REG,
                obj_size=MIB, size=4096, offset=0)  # fmt: skip
    return script.write(tmp_path / "trace")


def tree(mount: Path) -> list[tuple]:
    found = []
    for path in sorted(mount.rglob("*")):
        stat = path.lstat()
        found.append((path.name, stat.st_mode, stat.st_size, stat.st_nlink, stat.st_mtime_ns,
                      path.read_bytes() if path.is_file() else b""))  # fmt: skip
    return found


@pytest.mark.parametrize("fstype", ["ext4", "xfs", "btrfs"])
def test_a_copied_image_is_the_one_that_was_kept(fstype, trace, tmp_path, require):
    require(fstype)
    build(Trace.open(trace), tmp_path / "plan")
    engine, candidate = Engine(tmp_path / "plan"), parse(fstype)
    kept = tmp_path / "kept"
    with prepared(candidate, tmp_path, SMALLEST_BYTES, kept) as target:
        assert not target.copied
        engine.fixture(target.mount)
        target.cool(kept)
        first = tree(target.mount)
        (target.mount / "box" / "m3").unlink()  # later changes do not reach the kept image
    with prepared(candidate, tmp_path, SMALLEST_BYTES, kept) as target:
        assert target.copied
        assert tree(target.mount) == first
        assert engine.verify(target.mount)["mismatched"] == 0
    assert kept.stat().st_blocks * 512 < kept.stat().st_size


def test_later_rounds_begin_with_a_copy(trace, tmp_path, require):
    require("ext4")
    rows = replay(trace, ["ext4"], tmp_path / "out", rounds=3, pace="afap")
    assert [row["fixture"] for row in rows] == ["built", "copied", "copied"]
    assert {row["divergent"] + row["final_state"]["mismatched"] for row in rows} == {0}
    assert {row["cache"] for row in rows} == {"recorded"}


def in_memory(mount: Path) -> int:
    """Return how many bytes of the files below a directory are in the page cache."""
    return sum(resident(mount).values())


def resident(mount: Path) -> dict[str, int]:
    """Return by fincore(1) how many bytes of each file are in the page cache, if any."""
    files = sorted(str(path) for path in mount.rglob("m*"))
    done = subprocess.run(
        ["fincore", "--noheadings", "--bytes", "--output", "RES,FILE", *files],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    lines = (line.split() for line in done.stdout.splitlines())
    return {Path(name).name: int(size) for size, name in lines if int(size)}


@pytest.mark.parametrize("cache", ["cold", "warm"])
def test_caches_are_what_was_asked_for(cache, trace, tmp_path, require):
    require("ext4")
    seen = []

    def look(mount: Path, command: list[str], _output: Path, _show: object) -> int:
        seen.append(in_memory(mount))
        return subprocess.run(command, check=False).returncode

    (row,) = replay(trace, ["ext4"], tmp_path / "out", pace="afap", recorder=look,
                    begin=Begin(cache))  # fmt: skip
    assert row["cache"] == cache
    # A kernel that reclaims in advance (DAMON) has dropped 45 of the 10,240 pages at once.
    assert (36 * MIB < seen[0] <= 40 * MIB) if cache == "warm" else seen == [0]


def of_waits(trace: Path, kind: str) -> Path:
    """Change meta.json: the recorder saw waits, and took a snapshot of this kind."""
    meta = json.loads((trace / "meta.json").read_text())
    meta |= {"programs": {"attached": ["on_switch"]}, "snapshot": {"kind": kind}}
    (trace / "meta.json").write_text(json.dumps(meta))
    return trace


@pytest.fixture
def looked_at(script, tmp_path) -> Callable[[str], Path]:
    """Return a trace of stats of names, and reads of two files; the read of m1 had to wait."""
    script.entry("box", ino=2, mode=DIR)
    for number in range(300):
        script.entry(f"box/m{number}", ino=100 + number, mode=REG, size=64 * 1024)
    known = {"obj_mode": REG, "obj_size": 64 * 1024}
    for number in range(300):
        script.call(
            10, number / 10, "newfstatat", f"box/m{number}", ret=0, ino=100 + number, **known
        )
    for fd, (number, wait) in enumerate([(0, 0), (1, 3_000_000)], 3):
        script.call(
            10, 40 + fd, "openat", f"box/m{number}", ret=fd, flags=0, ino=100 + number, **known
        )
        script.call(10, 50 + 5 * fd, "read", f"box/m{number}", ret=65536, base=0, fd=fd,
                    ino=100 + number, size=65536, offset=0, blocked_ns=wait, **known)  # fmt: skip
    return lambda kind: of_waits(script.write(tmp_path / "trace"), kind)


def reads_of(mount: Path) -> int:
    """Return the kernel's count of sectors that were read from the disk below a directory."""
    dev = mount.stat().st_dev
    disk = Path(f"/sys/dev/block/{os.major(dev)}:{os.minor(dev)}/stat")
    return int(disk.read_text().split()[2])


def test_names_are_in_memory_that_the_recorder_had_read(looked_at, tmp_path, require):
    """By the disk's count of reads, names are not read; from cold caches they are."""
    require("ext4")
    trace, reads = looked_at("full"), {}

    def watched(cache: str) -> dict[str, Any]:
        def look(mount: Path, command: list[str], _output: Path, _show: object) -> int:
            before = reads_of(mount)
            status = subprocess.run(command, check=False).returncode
            reads[cache] = reads_of(mount) - before
            return status

        (row,) = replay(trace, ["ext4"], tmp_path / cache, pace="afap", recorder=look,
                        begin=Begin(cache))  # fmt: skip
        return row

    watched("cold")
    cached = watched("recorded")["cached"]
    assert (cached["names"], cached["files"], cached["data_bytes"]) == (301, 1, 65536)
    assert reads["recorded"] == 65536 // 512  # m1 alone
    # m0 is read, too, and the names of the directory; the mount has read the first 512 inodes.
    assert reads["cold"] >= 2 * 65536 // 512 + 4096 // 512


def test_data_is_in_memory_that_no_call_waited_for(looked_at, tmp_path, require):
    """By fincore; without a snapshot, the names in memory are those that no call waited for."""
    require("ext4")
    held: dict[str, int] = {}

    def look(mount: Path, command: list[str], _output: Path, _show: object) -> int:
        held.update(resident(mount))
        return subprocess.run(command, check=False).returncode

    (row,) = replay(looked_at("none"), ["ext4"], tmp_path / "out", pace="afap", recorder=look)
    assert held == {"m0": 65536}
    assert row["cached"]["names"] == 300  # no call names the directory


def used(trace: Path, place: Path, content: Content) -> int:
    """Return the bytes that the fixture takes on btrfs with compress=zstd."""
    place.mkdir()
    build(Trace.open(trace), place / "plan")
    engine = Engine(place / "plan", content)
    with prepared(parse("btrfs-zstd"), place, SMALLEST_BYTES) as target:
        images.run("sync", "-f", target.mount)
        before = os.statvfs(target.mount)
        engine.fixture(target.mount)
        images.run("sync", "-f", target.mount)
        after = os.statvfs(target.mount)
        assert engine.verify(target.mount)["mismatched"] == 0
    return (before.f_bfree - after.f_bfree) * after.f_frsize


def test_data_compresses_as_asked_for(trace, tmp_path, require):
    """By the used space of btrfs: all of the data, and a fifth of it with bookkeeping."""
    require("btrfs")
    noise = used(trace, tmp_path / "noise", Content())
    easy = used(trace, tmp_path / "easy", Content(compressible=80))
    assert noise > 38 * MIB
    assert 0.1 * noise < easy < 0.4 * noise


def test_files_are_as_equal_as_asked_for(trace, tmp_path):
    build(Trace.open(trace), tmp_path / "plan")
    contents = {}
    for percent in (0, 100):
        target = tmp_path / f"target{percent}"
        target.mkdir()
        engine = Engine(tmp_path / "plan", Content(duplicate=percent))
        engine.fixture(target)
        contents[percent] = {path.read_bytes() for path in target.glob("box/m*")}
        assert engine.verify(target)["mismatched"] == 0
    assert (len(contents[0]), len(contents[100])) == (40, 1)
