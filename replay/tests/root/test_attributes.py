"""Modes, owners, times and attributes: only changes of these order the processes."""

from pathlib import Path

import pytest

from spoolscope.replay.run import replay
from spoolscope.tracers.session import Request, record

pytestmark = [pytest.mark.root, pytest.mark.steady]
ROUNDS = 3


def test_changes_by_one_process_after_another_end_as_they_did(spool, tmp_path, require):
    for needed in ("bpf", "ext4", "getfattr"):
        require(needed)
    mount = spool("ext4")
    command = ["bash", str(Path(__file__).with_name("attributes.sh")), str(mount)]
    done = record(Request([mount], tmp_path / "trace", command=command, stdout_to_stderr=True))
    assert done.command_status == 0
    rows = replay(done.trace, ["ext4"], tmp_path / "out", pace="afap", rounds=ROUNDS)
    assert len(rows) == ROUNDS
    for row in rows:
        told = (Path(row["run"]) / "divergences.json").read_text()
        assert row["syscalls"] > 5_000
        assert row["divergent"] == 0, told
        assert row["final_state"]["mismatched"] == 0, row["final_state"]
