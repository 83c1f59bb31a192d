"""The explained edges are those that a replay keeps."""

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from spoolscope.replay.engine import Engine
from spoolscope.replay.plan import build
from spoolscope.replay.run import replay
from spoolscope.traces.trace import Trace

pytestmark = [pytest.mark.root, pytest.mark.steady]
SAMPLE = Path(__file__).resolve().parents[3] / "traces" / "samples" / "postfix-dovecot"
STRIDE = 7


def test_no_call_begins_before_those_it_waits_for_have_ended(tmp_path: Path) -> None:
    summary = build(Trace.open(SAMPLE), tmp_path / "plan")
    engine = Engine(tmp_path / "plan")
    told = engine.explain("resource", range(0, summary.ops, STRIDE))
    assert sum(told["edges"].values()) == engine.order()["edges"]
    edges = np.array(
        [
            (edge["op"], edge["before"])
            for one in told["explained"]
            for edge in (*one["waits"], *one["covered"])
        ]
    )
    assert len(edges) > 1000
    target = tmp_path / "target"
    target.mkdir()
    (row,) = replay(SAMPLE, [f"dir:{target}"], tmp_path / "out", pace="afap")
    assert row["divergent"] == 0
    outcomes = pq.read_table(Path(row["run"]) / "outcomes.parquet", columns=["issue_ns", "end_ns"])
    issue, end = (outcomes[name].to_numpy() for name in ("issue_ns", "end_ns"))
    early = edges[issue[edges[:, 0]] < end[edges[:, 1]]]
    assert not len(early), early[:5]
