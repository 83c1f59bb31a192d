"""What is read and written through mappings, against what the kernel counts of itself."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from spoolscope.tracers.session import Request, record
from spoolscope.traces.trace import Trace

pytestmark = pytest.mark.root
SOURCE = Path(__file__).with_name("mapped.c")
PAGES = 128


class Touch(NamedTuple):
    page: int
    write: int
    cached: int
    major: int
    minor: int


@pytest.fixture
def touched(tmp_path: Path, require: Callable[..., None]) -> Callable[[Path], tuple]:
    """Record the program on a file and return what it counted and the trace."""

    def run(mount: Path, mode: str = "", directory: Path | None = None) -> tuple:
        program, said = tmp_path / "mapped", tmp_path / "said"
        file = (directory or mount) / "mail"
        subprocess.run(["cc", "-O1", "-Wall", "-Werror", "-o", program, SOURCE], check=True)
        file.write_bytes(b"x" * 4096 * PAGES)
        command = ["sh", "-c", f"{program} {file} {mode} > {said}"]
        summary = record(
            Request(spools=[mount], output=tmp_path / "t", command=command, keep_names=True)
        )
        assert summary.command_status == 0
        missing = summary.meta["programs"]["missing"]
        needed = {"on_fault_page", "on_fault_around", "on_fault_dirty"} & set(missing)
        if needed:
            require("page faults", "; ".join(missing[name] for name in needed))
        rows = [line.split() for line in said.read_text().splitlines()[1:]]
        return [Touch(*map(int, row)) for row in rows], Trace.open(summary.trace)

    return run


def compare(touches: list[Touch], trace: Trace) -> None:
    """Every touch that the kernel counted has its fault, in order, and there are no others."""
    counted = [touch for touch in touches if touch.major or touch.minor]
    faults = trace.table("faults").to_pylist()
    paths = {row["path_id"]: row["path"] for row in trace.table("paths").to_pylist()}
    assert len(faults) == len(counted) == sum(t.major + t.minor for t in touches)
    for touch, fault in zip(counted, faults, strict=True):
        assert (fault["major"], fault["write"]) == (touch.major == 1, touch.write == 1), touch
        assert not (fault["absent"] and touch.cached), touch
        assert paths[fault["path_id"]] == "mail"
        if fault["page"] is None:
            assert 0 <= touch.page - fault["first_page"] < fault["n_pages"], touch
        else:
            assert fault["page"] == touch.page


@pytest.mark.parametrize("fstype", ["ext4", "xfs", "btrfs"])
def test_every_fault_of_the_file_is_there_as_the_kernel_counted_it(fstype, spool, touched):
    touches, trace = touched(spool(fstype))
    compare(touches, trace)
    assert sum(touch.major for touch in touches) == 6
    faults = trace.table("faults").to_pylist()
    # Page 100 was in the cache: mapped with those around it, and nobody says which was touched.
    assert [fault["absent"] for fault in faults if fault["page"] is None] == [False]
    assert sum(fault["absent"] for fault in faults) == 6
    n, written = len(faults), sum(fault["write"] for fault in faults)
    info = [sys.executable, "-m", "spoolscope.cli.main", "info", trace.path]
    said = subprocess.run(info, capture_output=True, text=True, check=True).stdout
    assert f"\n{n} page faults on mapped files of the spool (6 major, {written} writes)" in said


def test_pages_that_are_mapped_together_fault_once(spool, touched):
    """With readahead: most pages never fault, some only wait for a reader."""
    touches, trace = touched(spool("ext4"), "sequential")
    compare(touches, trace)
    assert 0 < trace.table("faults").num_rows < PAGES / 4


def test_other_files_faults_cost_nothing_and_leave_nothing(spool, touched, tmp_path):
    touches, trace = touched(spool("ext4"), directory=tmp_path)
    assert sum(touch.major for touch in touches) == 6
    assert trace.table("faults").num_rows == 0
