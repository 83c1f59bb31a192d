"""Locks that were refused because they would have closed a circle are refused again."""

import errno
import sys
from pathlib import Path

import pytest

from spoolscope.replay.run import replay
from spoolscope.tracers.session import Request, record
from spoolscope.traces.trace import Trace

pytestmark = [pytest.mark.root, pytest.mark.steady]
PROGRAM = Path(__file__).with_name("deadlock.py")


def test_deadlocks_are_replayed_as_such(spool, tmp_path):
    mount, told = spool("ext4"), tmp_path / "told"
    command = f"{sys.executable} {PROGRAM} {mount} > {told}"
    done = record(Request([mount], tmp_path / "trace", command=["sh", "-c", command]))
    assert done.command_status == 0
    refused = Trace.open(done.trace).table("syscalls", ["errno"])["errno"].to_pylist()
    assert refused.count(errno.EDEADLK) == int(told.read_text()) > 0
    (row,) = replay(done.trace, ["ext4"], tmp_path / "out", pace="afap")
    assert row["divergent"] == 0, (Path(row["run"]) / "divergences.json").read_text()
    assert row["executed"] == row["syscalls"]
    assert row["orders_given_up"] == 0
    # Each wrote its own bytes in its turn.
    assert row["final_state"]["mismatched"] == 0, row["final_state"]
