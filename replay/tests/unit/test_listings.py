"""Names that listings show, against those that the trace implies."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from spoolscope.replay.engine import Engine
from spoolscope.replay.outcomes import DIVERGED, REASONS, SAME, read_outcomes
from spoolscope.replay.plan import build
from spoolscope.replay.run import replay
from spoolscope.replay.whatif import parse
from spoolscope.traces.native import find_binary
from spoolscope.traces.trace import Trace

REG, DIR = 0o100600, 0o040700
LATE_MS = 1500
# This program waits for a name that the replay makes, then runs a command in its directory.
MEDDLER = """
import os, sys, time
sign, do, what = sys.argv[1:]
for _ in range(5000):
    if os.path.exists(sign): break
    time.sleep(0.002)
open(what, "x") if do == "add" else os.unlink(what)
"""


@pytest.fixture
def box(script):
    """A directory with one known file; ``make(at_ms)`` lists it through a new descriptor."""
    script.snapshot = "full"
    script.entry("box", ino=2, mode=DIR)
    script.entry("box/old", ino=3, mode=REG)
    script.entry("box/link", ino=4, mode=0o120777, target_id=script.path("old", "text"))

    def listed(tid: int, at: float, path: str = "box", ino: int = 2, end: float = 0.3) -> None:
        script.call(tid, at, "openat", path, ret=9, flags=0o200000, ino=ino, obj_mode=DIR)
        for later, ret in ((0.2, 96), (end, 0)):
            script.call(tid, at + later, "getdents64", path, ret=ret, base=0, fd=9, size=32768,
                        ino=ino, obj_mode=DIR)  # fmt: skip
        script.call(tid, at + end + 0.2, "close", path, base=0, fd=9, ino=ino)

    return listed


def run(script, tmp_path: Path, part: str | None = None) -> dict:
    target = tmp_path / "target"
    target.mkdir()
    trace = script.write(tmp_path / "trace")
    (row,) = replay(
        trace, [f"dir:{target}"], tmp_path / "out", pace="afap", what_if=parse([], 1, part)
    )
    return row


@pytest.mark.parametrize(("part", "compared"), [(None, 4), ("0.0025..", 3), ("0.0075..", 2)])
def test_listings_show_what_came_and_went_before(script, box, tmp_path, part, compared):
    box(10, 1)
    script.call(11, 2, "openat", "box/new", ret=3, flags=0o301, mode=0o600, ino=5, obj_mode=REG)
    box(10, 3)
    script.call(11, 4, "unlink", "box/old", ino=3)
    script.call(11, 5, "rename", "box/new", path2="box/newer", ino=5)
    script.call(11, 6, "mkdir", "fresh", mode=0o700)
    script.call(11, 7, "stat", "fresh", ino=6, obj_mode=DIR)
    box(10, 8)
    box(12, 9, "fresh", 6)
    row = run(script, tmp_path, part)
    assert row["divergent"] == 0, row["divergences"]
    assert row["listings"]["compared"] == compared
    assert row["listings"]["other_names"] == 0
    assert set(row["listings"]["not_compared"].values()) == {0}


def test_what_is_not_known_is_not_compared(script, box, tmp_path):
    box(10, 1)
    script.entry("other", ino=7, mode=DIR)
    script.call(11, 2.1, "mkdir", "other/sub", dur_ms=0.3, mode=0o700)  # while it is listed
    box(10, 2, "other", 7)
    script.call(10, 3, "openat", "box", ret=9, flags=0o200000, ino=2, obj_mode=DIR)
    script.fork(10, 12, 3.2)
    for tid, at, ret in ((10, 3.3, 96), (12, 3.5, 0)):  # one position, two readers
        script.call(tid, at, "getdents64", "box", ret=ret, base=0, fd=9, size=32768, ino=2,
                    obj_mode=DIR)  # fmt: skip
    row = run(script, tmp_path)
    assert row["listings"]["compared"] == 1
    missed = row["listings"]["not_compared"]
    assert missed["names came or went meanwhile"] == 1
    assert missed["read in part"] == 1


def test_without_a_whole_snapshot_only_new_directories_are_known(script, box, tmp_path):
    script.snapshot = "touched"
    script.call(11, 0.5, "mkdir", "fresh", mode=0o700)
    script.call(11, 0.7, "stat", "fresh", ino=6, obj_mode=DIR)
    box(10, 1)
    box(10, 2, "fresh", 6)
    row = run(script, tmp_path)
    assert row["listings"]["compared"] == 1
    assert row["listings"]["not_compared"]["directory not known"] == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("do", "what"), [("add", "box/intruder"), ("remove", "box/old"), ("add", "elsewhere")]
)
def test_names_that_a_stranger_adds_or_removes_are_found(script, box, tmp_path, do, what):
    target = tmp_path / "target"
    target.mkdir()
    script.call(10, 1, "mkdir", "sign", mode=0o700)
    box(10, LATE_MS)
    plan, outcomes = tmp_path / "plan", tmp_path / "outcomes"
    build(Trace.open(script.write(tmp_path / "trace")), plan)
    meddler = [sys.executable, "-c", MEDDLER, target / "sign", do, target / what]
    with subprocess.Popen(meddler) as other:
        Engine(plan).fixture(target)
        words = ["--target", target, "--prepared", "--pace", "original", "--outcomes", outcomes]
        command = [find_binary("spoolscope-replay"), "run", plan, *words]
        subprocess.run(command, check=True, capture_output=True)
        assert other.wait() == 0
    results = read_outcomes(outcomes)
    wrong = [REASONS[r] for r in results["reason"][results["verdict"] == DIVERGED]]
    assert wrong == ([] if what == "elsewhere" else ["names"])
    assert (results["verdict"] == SAME).sum() == len(results) - len(wrong)
    assert os.path.lexists(target / "box" / "link")
