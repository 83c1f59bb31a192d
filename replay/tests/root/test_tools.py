"""Calls of backup tools, indexers and programs with many threads have their results again."""

import json
import sys
from pathlib import Path

import pytest

from spoolscope.replay.run import replay
from spoolscope.tracers.session import Request, record

pytestmark = pytest.mark.root


def test_what_other_tools_do_is_replayed(spool, tmp_path, require):
    require("xfs")
    mounts, outside, said = [spool("ext4"), spool("xfs")], tmp_path / "outside", tmp_path / "said"
    outside.mkdir()
    words = [sys.executable, Path(__file__).with_name("tools.py"), *mounts, outside]
    work = f"{' '.join(map(str, words))} > {said}"
    done = record(Request(mounts, tmp_path / "trace", command=["sh", "-c", work]))
    assert done.command_status == 0  # every answer was as expected
    (row,) = replay(done.trace, ["ext4"], tmp_path / "out", pace="afap")
    told = (Path(row["run"]) / "divergences.json").read_text()
    assert row["divergent"] == 0, told
    assert row["final_state"]["mismatched"] == 0, row["final_state"]
    skipped = row["certificate"]["calls"]["skipped_for"]
    expected = json.loads(said.read_text())
    assert skipped == {"around": expected["around"], "used_up": expected["used_up"]}
    assert row["executed"] == row["syscalls"] - sum(skipped.values()) > 350
