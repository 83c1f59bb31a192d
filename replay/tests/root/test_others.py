"""Calls of doveadm, rsync, find and rm on a spool, in small."""

import sys
from pathlib import Path

import pytest

from spoolscope.replay.run import replay
from spoolscope.tracers.session import Request, record

pytestmark = [pytest.mark.root, pytest.mark.steady]


def test_what_programs_besides_the_server_do_is_replayed(spool, tmp_path):
    mount = spool("ext4")
    command = [sys.executable, str(Path(__file__).with_name("others.py")), str(mount)]
    done = record(Request([mount], tmp_path / "trace", command=command))
    assert done.command_status == 0  # every result was as expected
    (row,) = replay(done.trace, ["ext4"], tmp_path / "out", pace="afap")
    told = (Path(row["run"]) / "divergences.json").read_text()
    assert row["executed"] == row["syscalls"] > 20, told
    assert row["divergent"] == 0, told
    assert row["final_state"]["mismatched"] == 0, row["final_state"]
