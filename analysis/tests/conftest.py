"""A trace written by hand, with the real schema, for tests of logic."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from spoolscope_testing.replay_builder import ReplayBuilder
from spoolscope_testing.trace_builder import TraceBuilder

from spoolscope.analysis.explain import explain_with
from spoolscope.traces.trace import Trace


@pytest.fixture
def builder(tmp_path: Path) -> TraceBuilder:
    """Return an empty builder for a trace in a fresh directory."""
    return TraceBuilder(tmp_path / "trace")


@pytest.fixture
def new_builder(tmp_path: Path) -> Callable[[str], TraceBuilder]:
    """Return a function that makes a builder for ``tmp_path / name``."""
    return lambda name: TraceBuilder(tmp_path / name)


@pytest.fixture
def new_replay(tmp_path: Path) -> Callable[..., ReplayBuilder]:
    """Return a function that makes a replay builder for ``tmp_path / name``."""
    return lambda name, trace, n, **header: ReplayBuilder(tmp_path / name, trace, n, **header)


@pytest.fixture
def check_every_row() -> Callable[[Trace], int]:
    """Return ``check(trace)``, which asserts that each call's parts add up, and counts calls."""
    return _check_every_row


def _check_every_row(trace: Trace) -> int:
    """Add up the causes of each call with numpy, independently of the queries."""
    with trace.connect() as con:
        found = explain_with(con, trace, blame=True)
        waits = con.execute("SELECT tid, seq, pid, call_ns, dur_ns FROM named_waits").fetchnumpy()
        edges = con.execute(
            "SELECT victim_tid AS tid, victim_seq AS seq, to_ns - from_ns AS ns, "
            "mechanism IS NOT DISTINCT FROM 'cpu' AS cpu FROM edges WHERE hop = 1"
        ).fetchnumpy()
        parts = con.execute(
            "SELECT sum(ns) FROM wait_parts UNION ALL SELECT sum(dur_ns) FROM journal_waits"
        ).fetchall()
    calls = trace.table("syscalls")
    column = {name: calls[name].to_numpy() for name in
              ("tid", "seq", "ts_ns", "dur_ns", "oncpu_ns", "blocked_ns", "runq_ns",
               "preempted_ns")}  # fmt: skip
    machine = column["oncpu_ns"] + column["runq_ns"] + column["preempted_ns"]
    assert (machine + column["blocked_ns"] == column["dur_ns"]).all()
    assert min(column[name].min() for name in column if name != "tid") >= 0
    keys = zip(column["tid"].tolist(), column["seq"].tolist(), column["ts_ns"].tolist(),
               strict=True)  # fmt: skip
    row = {key: n for n, key in enumerate(keys)}
    named = np.zeros(len(calls), np.int64)
    wait_keys = zip(waits["tid"].tolist(), waits["seq"].tolist(), waits["call_ns"].tolist(),
                    strict=True)  # fmt: skip
    np.add.at(named, [row[key] for key in wait_keys], np.asarray(waits["dur_ns"]))
    assert (named + machine == column["dur_ns"]).all()
    at = {key[:2]: n for key, n in row.items()}
    ready = column["runq_ns"] + column["preempted_ns"]
    for of, whole in ((~edges["cpu"], column["blocked_ns"]), (edges["cpu"], ready)):
        charged = np.zeros(len(calls), np.int64)
        edge_keys = zip(edges["tid"][of].tolist(), edges["seq"][of].tolist(), strict=True)
        np.add.at(charged, [at[key] for key in edge_keys], np.asarray(edges["ns"][of]))
        assert (charged <= whole).all()
    assert parts[0] == parts[1]
    assert found.split.sum_error_ns == found.split.segment_error_ns == 0
    assert sum(found.causes.values()) == int(column["dur_ns"].sum()) == found.latency_ns
    charges = found.commits.charges
    assert charges.charged_ns + charges.uncharged_ns == charges.commit_ns
    for kind in found.commits.kinds:
        assert sum(kind.parts.values()) == kind.total_ns
    return len(calls)
