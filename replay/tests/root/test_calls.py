"""Every call of calls.txt, made by the recorder's own oracle program, replayed one by one."""

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from spoolscope.replay.outcomes import call_name, read_plan
from spoolscope.replay.plan import build
from spoolscope.replay.run import replay
from spoolscope.traces.trace import Trace

pytestmark = [pytest.mark.root, pytest.mark.steady]
# A failed exec is not repeated, and an unknown fcntl command may do harm.
SKIPPED = {"execve", "execveat", "fcntl"}


def test_every_call_gives_its_recorded_result(every_call, tmp_path):
    (row,) = replay(every_call, ["ext4"], tmp_path / "out", pace="afap")
    build(Trace.open(every_call), tmp_path / "plan")
    ops = read_plan(tmp_path / "plan").ops
    verdicts = pq.read_table(Path(row["run"]) / "outcomes.parquet").column("verdict").to_pylist()
    found: dict[str, set[str]] = {"same": set(), "diverged": set(), "skipped": set()}
    for op, verdict in zip(ops, verdicts, strict=True):
        found[verdict].add(call_name(op))
    assert not found["diverged"]
    assert found["skipped"] <= SKIPPED
    assert len(found["same"]) > 90
    assert row["final_state"]["mismatched"] == 0, row["final_state"]
