"""Filesystems mounted below the spool during a recording are no part of it."""

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from spoolscope.replay.run import replay
from spoolscope.tracers.session import Request, record
from spoolscope.traces.constants import CALL_ELSEWHERE
from spoolscope.traces.trace import Trace

pytestmark = [pytest.mark.root, pytest.mark.steady]
HERE = Path(__file__).parent


def replayed(mount: Path, place: Path, command: list[str]) -> tuple[Trace, dict[str, int]]:
    """Record a command and replay it; return the trace and the outcomes of its calls."""
    done = record(Request([mount], place / "trace", command=command))
    assert done.command_status == 0  # every result was as expected
    # Names as find lists them; lost+found is not compared, nor the top.
    found = subprocess.check_output(["find", mount, "-xdev", "-printf", "x"])
    (row,) = replay(done.trace, ["ext4"], place / "out", pace="afap")
    assert row["divergent"] == 0, (Path(row["run"]) / "divergences.json").read_text()
    assert row["final_state"]["mismatched"] == 0, row["final_state"]
    assert row["final_state"]["checked"] == len(found) - 1
    calls = row["certificate"]["calls"]
    assert calls["skipped"] == 0, calls["skipped_for"]
    assert calls["executed"] == calls["recorded"] - calls["elsewhere"]
    return Trace.open(done.trace), calls


def test_calls_below_other_mounts_are_left_out_and_counted(spool, tmp_path):
    mount = spool("ext4")
    for name in ("sub", "src", "early", "sub/below"):
        (mount / name).mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "none", mount / "sub"], check=True)
    subprocess.run(["mount", "--bind", mount / "src", mount / "early"], check=True)
    try:
        _, calls = replayed(mount, tmp_path, ["sh", str(HERE / "mounting.sh"), str(mount)])
    finally:
        for name in ("sub", "early", "over", "bound"):
            subprocess.run(["umount", "-q", mount / name], check=False)
    assert calls["elsewhere"] > 20


def test_mounts_that_nobody_could_look_at_are_known_by_their_calls(spool, tmp_path):
    mount, told = spool("ext4"), tmp_path / "told"
    program = f"{sys.executable} {HERE / 'mounting.py'} {mount} > {told}"
    trace, _ = replayed(mount, tmp_path, ["sh", "-c", program])
    table = trace.table("syscalls").to_pydict()
    rows = zip(table["syscall"], table["flags_seen"], strict=True)
    found = Counter(name for name, flags in rows if flags & CALL_ELSEWHERE)
    made = json.loads(told.read_text())
    assert {name: found[name] for name in made} == made
