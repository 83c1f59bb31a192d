"""Names and data in memory when a recording began, by its calls; nothing else is read."""

import json
import os
from pathlib import Path

import pytest

from spoolscope.replay.outcomes import read_plan
from spoolscope.replay.plan import build
from spoolscope.replay.recorded_cache import Memory, memory_of, remember
from spoolscope.traces.trace import Trace

REG, DIR = 0o100640, 0o040750
SIZE = 100_000


def memory(script, tmp_path: Path, kind: str, *, sees_waits: bool = True) -> Memory:
    script.snapshot = kind
    trace = script.write(tmp_path / "trace")
    meta = json.loads((trace / "meta.json").read_text())
    meta["programs"] = {"attached": ["on_switch"] if sees_waits else []}
    (trace / "meta.json").write_text(json.dumps(meta))
    build(Trace.open(trace), tmp_path / "plan")
    return memory_of(Trace.open(trace), read_plan(tmp_path / "plan"))


@pytest.fixture
def spool(script):
    """Four files: read without a wait, read after a wait, first written, only looked at."""
    script.entry("box", ino=2, mode=DIR)
    for number, name in enumerate(("free", "waited", "written", "seen")):
        script.entry(f"box/{name}", ino=10 + number, mode=REG, size=SIZE)

    def data(at_ms: float, call: str, name: str, ino: int, offset: int, blocked_ns: int) -> None:
        script.call(10, at_ms, call, name, ret=1000, base=0, fd=3, ino=ino, obj_mode=REG,
                    obj_size=SIZE, size=1000, offset=offset, blocked_ns=blocked_ns)  # fmt: skip

    data(1, "pread64", "box/free", 10, 9000, 0)
    data(2, "pread64", "box/free", 10, 40_000, 5000)  # later ones do not matter
    data(3, "pread64", "box/waited", 11, 0, 5000)
    data(4, "pread64", "box/waited", 11, 0, 0)
    data(5, "pwrite64", "box/written", 12, SIZE, 0)
    script.call(10, 6, "newfstatat", "box/seen", ret=0, ino=13, obj_mode=REG, obj_size=SIZE)
    return script


def test_all_names_after_a_full_snapshot_and_data_that_no_call_waited_for(spool, tmp_path):
    found = memory(spool, tmp_path, "full")
    assert found.all_names
    assert not found.names
    assert found.data == [(b"box/free", 8192, 41_000), (b"box/written", 98_304, 101_000)]


def test_without_a_snapshot_names_that_no_call_waited_for(spool, tmp_path):
    found = memory(spool, tmp_path, "none")
    assert not found.all_names
    assert sorted(found.names) == [b"box/free", b"box/seen", b"box/written"]


def test_a_recording_that_saw_no_waits_tells_nothing_of_data(spool, tmp_path):
    found = memory(spool, tmp_path, "none", sees_waits=False)
    assert (found.all_names, found.names, found.data) == (False, [], [])
    assert "does not tell" in found.why


def test_nothing_outside_the_target_is_read(target):
    (target.parent / "outside").write_bytes(b"x" * 9000)
    (target / "link").symlink_to(target.parent)
    (target / "to").symlink_to(target.parent / "outside")
    (target / "in").write_bytes(b"y" * 9000)
    os.mkfifo(target / "fifo")
    names = [b"../outside", b"link/outside", b"to", b"in", b"gone", b"in/below", b"fifo"]
    cached = remember(Memory("", False, names, [(name, 0, 8000) for name in names]), target)
    assert (cached.names, cached.files, cached.data_bytes) == (3, 1, 8000)
