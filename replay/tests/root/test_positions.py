"""Locks counted from the position are the recorded ones, whichever process moves that."""

import sys
from pathlib import Path

import pytest

from spoolscope.replay.run import replay
from spoolscope.tracers.session import Request, record
from spoolscope.traces.trace import Trace

pytestmark = [pytest.mark.root, pytest.mark.steady]
PROGRAM = Path(__file__).with_name("positions.py")
F_SETLKW, F_WRLCK, SEEK_SET = 7, 1, 0


def test_locks_counted_from_a_position_are_not_given_up(spool, tmp_path):
    mount, said = spool("ext4"), tmp_path / "said"
    work = f"cd {mount} && {sys.executable} -S {PROGRAM} > {said}"
    done = record(Request([mount], tmp_path / "trace", command=["sh", "-c", work]))
    assert done.command_status == 0
    calls = Trace.open(done.trace).table("syscalls").to_pylist()
    asked = [call for call in calls if (call["cmd"], call["lock_type"]) == (F_SETLKW, F_WRLCK)]
    wanted = [tuple(map(int, line.split())) for line in said.read_text().splitlines()]
    for pid in {pid for pid, _ in wanted}:
        told = [place for own, place in wanted if own == pid]
        assert [call["offset"] for call in asked if call["pid"] == pid] == told
    (row,) = replay(done.trace, ["ext4"], tmp_path / "out", pace="afap")
    assert row["divergent"] == 0, (Path(row["run"]) / "divergences.json").read_text()
    assert row["orders_given_up"] == 0
