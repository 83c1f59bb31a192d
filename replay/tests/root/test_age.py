"""Aged images: their extents by filefrag (e2fsprogs), and their churn, which the seed decides."""

import os
import re
import subprocess
from pathlib import Path

import pytest

from spoolscope.replay.age import Age
from spoolscope.replay.candidates import parse
from spoolscope.replay.engine import Engine
from spoolscope.replay.job import Begin
from spoolscope.replay.one_run import is_true
from spoolscope.replay.pace import parse_pace
from spoolscope.replay.plan import build
from spoolscope.replay.run import replay
from spoolscope.replay.targets import SMALLEST_BYTES, prepared
from spoolscope.traces.trace import Trace

pytestmark = [pytest.mark.root, pytest.mark.steady]
REG, DIR = 0o100640, 0o040750
MIB = 1 << 20
AGE = Age(7, 1.0)


@pytest.fixture
def trace(script, tmp_path) -> Path:
    """Return a trace of mails of some KiB, mailboxes of 8 MiB, and calls on one of each."""
    ino = 100
    for box in ("box", "box/cur"):
        script.entry(box, ino=ino, mode=DIR)
        ino += 1
    for number in range(300):
        script.entry(f"box/cur/{number}", ino=ino, mode=REG, size=1000 + 100 * number)
        ino += 1
    for number in range(16):
        script.entry(f"box/mbox{number}", ino=ino, mode=REG, size=8 * MIB)
        ino += 1
    script.call(10, 1, "unlink", "box/cur/7")
    script.call(10, 2, "rename", "box/cur/8", path2="box/cur/7")
    return script.write(tmp_path / "trace")


def filefrag(mount: Path) -> dict[str, int]:
    """Return the number of extents of every file of the spool."""
    subprocess.run(["sync", "-f", mount], check=True)
    names = [path for path in mount.rglob("*") if path.is_file() and not is_of_age(path, mount)]
    env = {**os.environ, "PATH": f"{os.environ['PATH']}:/usr/sbin:/sbin"}
    text = subprocess.check_output(["filefrag", *names], text=True, env=env)
    found = re.findall(r"^(.*): (\d+) extents? found$", text, re.MULTILINE)
    assert len(found) == len(names)
    return {str(Path(name).relative_to(mount)): int(n) for name, n in found}


def is_of_age(path: Path, mount: Path) -> bool:
    return path.is_relative_to(mount / "lost+found")


def kept_files(mount: Path) -> list[tuple[str, int]]:
    """Return name and size of the files that keep the free space in pieces."""
    files = [path for path in (mount / "lost+found").rglob("*") if path.is_file()]
    return sorted((str(path.relative_to(mount)), path.stat().st_size) for path in files)


@pytest.mark.parametrize("fstype", ["ext4", "xfs"])
def test_an_aged_fixture_is_in_more_pieces_and_else_the_same(fstype, trace, tmp_path, require):
    require(fstype)
    require("ext4")  # e2fsprogs has filefrag
    build(Trace.open(trace), tmp_path / "plan")
    engine = Engine(tmp_path / "plan")
    found = {}
    aged = Age(7, 2.0)
    for age in (None, aged):
        with prepared(parse(fstype), tmp_path, SMALLEST_BYTES) as target:
            built = engine.fixture(target.mount, age)
            found[age] = filefrag(target.mount)
            files = engine.files(tmp_path, tmp_path)
            command = engine.command(target.mount, parse_pace("afap"), "resource", files)
            engine.summary(files, subprocess.run(command, check=False).returncode)
            state = engine.verify(target.mount)
            assert state["mismatched"] == 0, state["examples"]
    told = built["age"]
    assert set(found[aged]) == set(found[None])
    assert told["fixture"]["extents"] == sum(found[aged].values())
    assert told["fixture"]["files_split"] == sum(n > 1 for n in found[aged].values())
    assert told["fixture"]["most"] == max(found[aged].values())
    assert sum(found[aged].values()) > 1.05 * sum(found[None].values())
    assert told["probe_after"]["extents"] > 2 * told["probe_before"]["extents"]
    assert told["names"] == 256 + 17  # in cur, at most 256; in box, mailboxes and cur


def test_the_seed_makes_the_churn(trace, tmp_path, require):
    require("ext4")
    build(Trace.open(trace), tmp_path / "plan")
    engine = Engine(tmp_path / "plan")
    found = []
    for age in (AGE, AGE, Age(8, 1.0)):
        with prepared(parse("ext4"), tmp_path, SMALLEST_BYTES) as target:
            told = engine.fixture(target.mount, age)["age"]
            kept = kept_files(target.mount)
        found.append((set(kept), told["files_refused"]))
        assert len(kept) == told["files_kept"]
        assert sum(size for _, size in kept) == told["bytes_kept"]
        assert told["bytes_made"] <= told["free_bytes_before"]
        assert told["files_made"] - told["files_removed"] == told["files_kept"]
    (first, refused), (again, refused_again), (other, _) = found
    # If directories hash names with the filesystem's own seed, space may end one file earlier.
    assert len(first ^ again) <= refused + refused_again < len(first) / 50
    assert len(first ^ other) > len(first)


def test_rounds_share_an_aged_image(trace, tmp_path, require):
    require("ext4")
    seen = []

    def look(mount: Path, command: list[str], _output: Path, _show: object) -> int:
        seen.append(filefrag(mount))
        return subprocess.run(command, check=False).returncode

    rows = replay(trace, ["ext4"], tmp_path / "out", rounds=2, pace="afap", recorder=look,
                  begin=Begin("warm", age=AGE))  # fmt: skip
    assert [row["fixture"] for row in rows] == ["built", "copied"]
    assert all(is_true(row) for row in rows)
    assert rows[0]["age"] == rows[1]["age"]
    assert rows[0]["age"]["seed"] == 7
    assert seen[0] == seen[1]
    assert sum(seen[0].values()) == rows[0]["age"]["fixture"]["extents"]
