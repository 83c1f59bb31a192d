"""Files with holes: their plan, their fixture, and the room that they take."""

import os
from pathlib import Path

import numpy as np
import pytest

from spoolscope.replay.engine import Engine
from spoolscope.replay.images import read_all
from spoolscope.replay.plan import build
from spoolscope.replay.run import replay
from spoolscope.traces.flat import DTYPES
from spoolscope.traces.trace import Trace

TB = 1 << 40
MIB = 1 << 20


@pytest.mark.parametrize(
    ("size", "blocks", "extents", "holes"),
    [
        (TB, 16, 2, TB - 8192),
        (TB, 0, 0, TB),
        (MIB, 2048, None, 0),
        (100, 0, 1, 0),  # in the inode
        (MIB, 700, None, 0),  # compressed
        (MIB, None, None, 0),
    ],
)
def test_what_the_walk_met(script, tmp_path, size, blocks, extents, holes) -> None:
    script.entry("a", 7, size=size, blocks=blocks, extents=extents)
    script.call(10, 1, "stat", "a", obj_mode=0o100644, obj_size=size, ino=7)
    summary = build(Trace.open(script.write(tmp_path / "trace")), tmp_path / "plan")
    (header,) = np.fromfile(tmp_path / "plan", DTYPES["plan_header"], 1)
    at = {"count": header["n_entries"], "offset": header["entries_at"]}
    entries = np.fromfile(tmp_path / "plan", DTYPES["plan_entry"], **at)
    assert entries["holes"].tolist() == [holes]
    assert summary.tree_bytes == size - holes


@pytest.fixture
def trace(script, tmp_path: Path) -> Path:
    """Two files of 1 TiB with 8 KiB of data; calls search the data of one, and write into it."""
    file = {"ino": 7, "obj_mode": 0o100644, "obj_size": TB}
    script.entry("untouched", 8, size=TB, blocks=16, extents=1)
    script.entry("a", 7, size=TB, blocks=16, extents=2)
    script.call(10, 1, "openat", "a", ret=3, flags=os.O_RDWR, **file)
    script.call(10, 2, "lseek", fd=3, cmd=os.SEEK_DATA, offset=0, ret=0, **file)
    script.call(10, 3, "lseek", fd=3, cmd=os.SEEK_HOLE, offset=0, ret=4096, **file)
    script.call(10, 4, "lseek", fd=3, cmd=os.SEEK_DATA, offset=4096, ret=MIB, **file)
    script.call(10, 5, "lseek", fd=3, cmd=os.SEEK_DATA, offset=MIB + 4096, ret=-6, **file)
    script.call(10, 6, "pwrite64", fd=3, offset=TB - 4096, size=4096, ret=4096, **file)
    return script.write(tmp_path / "trace")


def test_a_terabyte_of_hole_is_replayed(trace: Path, tmp_path: Path, target: Path) -> None:
    (row,) = replay(trace, [f"dir:{target}"], tmp_path / "out", pace="afap")
    assert (row["divergent"], row["executed"], row["final_state"]["mismatched"]) == (0, 6, 0)


def test_data_is_where_it_was_found(trace: Path, tmp_path: Path, target: Path) -> None:
    build(Trace.open(trace), tmp_path / "plan")
    Engine(tmp_path / "plan").fixture(target, None)
    assert data(target / "untouched") == [(0, 8192)]
    assert data(target / "a") == [(0, 4096), (MIB, MIB + 4096)]
    read_all(target)  # minutes, if it read the holes


def data(path: Path) -> list[tuple[int, int]]:
    """Return where a file has data."""
    found, at = [], 0
    with path.open("rb") as file:
        assert os.fstat(file.fileno()).st_size == TB
        while True:
            try:
                at = os.lseek(file.fileno(), at, os.SEEK_DATA)
            except OSError:
                return found
            end = os.lseek(file.fileno(), at, os.SEEK_HOLE)
            found.append((at, end))
            at = end
