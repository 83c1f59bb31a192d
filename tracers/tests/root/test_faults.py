"""Reads and writes through mappings, compared with the kernel's own counters."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import touches

from spoolscope.tracers.session import Request, record
from spoolscope.traces.trace import Trace

pytestmark = [pytest.mark.root, pytest.mark.steady]
SOURCE = Path(__file__).with_name("mapped.c")
PAGES = 128


@pytest.fixture
def touched(tmp_path: Path, require: Callable[..., None]) -> Callable[[Path], tuple]:
    """Return a function that records the program on a file, and returns counts and trace."""

    def run(mount: Path, mode: str = "", directory: Path | None = None) -> tuple:
        program, said = tmp_path / "mapped", tmp_path / "said"
        file = (directory or mount) / "mail"
        subprocess.run(["cc", "-O1", "-Wall", "-Werror", "-o", program, SOURCE], check=True)
        file.write_bytes(b"x" * 4096 * PAGES)
        command = ["sh", "-c", f"{program} {file} {mode} {file}.copy > {said}"]
        summary = record(
            Request(spools=[mount], output=tmp_path / "t", command=command, keep_names=True)
        )
        assert summary.command_status == 0
        missing = summary.meta["programs"]["missing"]
        needed = {"on_fault_page", "on_fault_around", "on_fault_dirty"} & set(missing)
        if needed:
            require("page faults", "; ".join(missing[name] for name in needed))
        return touches.read(said), Trace.open(summary.trace)

    return run


@pytest.mark.parametrize("fstype", ["ext4", "xfs", "btrfs"])
def test_every_fault_of_the_file_is_there_as_the_kernel_counted_it(fstype, spool, touched):
    made, trace = touched(spool(fstype))
    touches.compare(made, trace)
    assert sum(touch.major for touch in made) == 7
    faults = trace.table("faults").to_pylist()
    # Page 100 was in the cache and mapped with its neighbours: the kernel does not show which of
    # them was touched.
    assert [fault["absent"] for fault in faults if fault["page"] is None] == [False]
    assert sum(fault["absent"] for fault in faults) == 7
    n, written = len(faults), sum(fault["write"] for fault in faults)
    info = [sys.executable, "-m", "spoolscope.cli.main", "info", trace.path]
    done = subprocess.run(info, capture_output=True, text=True)
    said = done.stdout
    assert done.returncode == 0, said
    assert f"\n{n} page faults on mapped files of the spool (7 major, {written} writes)" in said


def test_pages_that_are_mapped_together_fault_once(spool, touched):
    """With readahead most pages never fault, and some faults only wait for a read in progress."""
    made, trace = touched(spool("ext4"), "sequential")
    touches.compare(made, trace)
    assert 0 < trace.table("faults").num_rows < PAGES / 4


def test_other_files_faults_cost_nothing_and_leave_nothing(spool, touched):
    made, trace = touched(spool("ext4"), directory=spool("xfs"))
    assert sum(touch.major for touch in made) == 7
    assert trace.table("faults").num_rows == 0
