"""A recording that begins during a storm misses nothing: its replay has the same final tree."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from storm import prepare
from storms import record_storm, replayed, tree

pytestmark = [pytest.mark.root, pytest.mark.steady]


@pytest.mark.parametrize("seed", [1])
def test_nothing_is_missed_in_a_storm(spool, tmp_path, when_ready, seed):
    mount = spool("ext4")
    prepare(str(mount))
    trace = record_storm(mount, seed, tmp_path / "trace", when_ready, snapshot_rate=4000)
    losses = trace.table("losses")["kind"].to_pylist()
    assert not {"syscall", "task"} & set(losses)
    row, left = replayed(trace, tmp_path / "out")
    assert (row["divergent"], row["final_state"]["mismatched"]) == (0, 0)
    recorded = tree(mount)
    assert {name: left.get(name) for name in recorded} == recorded
    assert left.keys() == recorded.keys()
