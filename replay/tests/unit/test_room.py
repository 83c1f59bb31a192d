"""The room that a replay asks for: bytes that are written, not the size of files with holes."""

import pytest

from spoolscope.replay.engine import Engine
from spoolscope.replay.plan import build
from spoolscope.replay.run import replay
from spoolscope.traces.errors import SpoolscopeError
from spoolscope.traces.trace import Trace

REG = 0o100600
CREATE = 0o302  # and O_RDWR
HUGE = 1 << 40
# Two stretches are written; each may begin and end within a block.
FILLED = 14_000 + 2 * 2 * 4096


def huge(script) -> None:
    """Make a file as LMDB does for its map: as long as it may ever be, and hardly used."""
    script.call(10, 1, "openat", "f", ret=3, flags=CREATE, mode=0o600, ino=7, obj_mode=REG,
                obj_size=0)  # fmt: skip
    same = {"base": 0, "fd": 3, "ino": 7, "obj_mode": REG, "obj_size": HUGE}
    script.call(10, 2, "ftruncate", "f", offset=HUGE, **same)
    for at, offset in enumerate((HUGE // 2, HUGE // 2 + 4000, 0), 3):
        script.call(10, at, "pwrite64", "f", ret=5000, size=5000, offset=offset, **same)


def peak_bytes(script, tmp_path) -> int:
    plan = tmp_path / "plan"
    build(Trace.open(script.write(tmp_path / "trace")), plan)
    return int(Engine(plan).order()["peak_bytes"])


def test_a_huge_file_of_holes_is_replayed_and_read_again_at_once(script, tmp_path, target):
    """Earlier a terabyte of room was asked for, and every byte was read at the end."""
    huge(script)
    script.call(10, 9, "fstat", "f", base=0, fd=3, ino=7, obj_mode=REG, obj_size=HUGE)
    (row,) = replay(
        script.write(tmp_path / "trace"), [f"dir:{target}"], tmp_path / "out", pace="afap"
    )
    assert (row["executed"], row["divergent"]) == (6, 0)
    assert row["final_state"] == {"checked": 1, "mismatched": 0, "examples": []}


def test_room_is_what_was_written_once_and_is_free_again_without_the_file(script, tmp_path):
    huge(script)
    script.call(10, 9, "unlink", "f")
    script.call(10, 10, "openat", "g", ret=4, flags=CREATE, mode=0o600, ino=8, obj_mode=REG,
                obj_size=0)  # fmt: skip
    script.call(10, 11, "write", "g", base=0, fd=4, ino=8, obj_mode=REG, obj_size=9000, ret=9000,
                size=9000, offset=0)  # fmt: skip
    assert peak_bytes(script, tmp_path) == FILLED


def test_pages_written_through_a_mapping_take_room_each_once(script, tmp_path):
    huge(script)
    script.call(10, 8, "mmap", "f", base=0, fd=3, ino=7, obj_mode=REG, size=HUGE, offset=0,
                mode=3, flags=1, ret=0x7F0000000000)  # fmt: skip
    script.more["faults"] = [
        {"ts_ns": 1_700_000_000_000_000_000 + at * 1_000_000, "pid": 10, "tid": 10, "dev": 1,
         "ino": 7, "page": page, "write": write}
        for at, page, write in ((9, 50, True), (10, 50, True), (11, 51, True), (12, 90, False))
    ]  # fmt: skip
    assert peak_bytes(script, tmp_path) == FILLED + 2 * 4096


def test_a_remedy_is_that_of_the_cause_not_of_a_word_in_the_path(script, tmp_path) -> None:
    script.call(10, 1, "stat", "a", ret=-2)
    build(Trace.open(script.write(tmp_path / "trace")), tmp_path / "plan")
    engine, target = Engine(tmp_path / "plan"), tmp_path / "freezer is not empty"
    with pytest.raises(SpoolscopeError, match="cannot be opened") as absent:
        engine.fixture(target)
    assert absent.value.remedy == "record the trace again, or report this"
    target.mkdir()
    (target / "free").touch()
    with pytest.raises(SpoolscopeError, match="is not empty") as full:
        engine.fixture(target)
    assert full.value.remedy == "give an empty directory"
