"""A trace written by hand, with the real schema, for tests of logic."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from trace_builder import MS, TraceBuilder

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


class ReplayBuilder:
    """Writer of the output of a replay: runs with outcomes and, if wanted, recorded traces."""

    def __init__(self, path: Path, trace: Path, n_calls: int, **header: Any) -> None:
        self.path = path
        self.n_calls = n_calls
        self.header = {"trace": str(trace), "pace": "original", "rounds": 1, "seed": 1} | header
        self.runs: list[dict[str, Any]] = []

    def run(
        self,
        candidate: str,
        latency_ns: list[int],
        round_: int = 0,
        skipped: tuple[int, ...] = (),
        reasons: list[str] | None = None,
        late_ns: list[int] | None = None,
        late_by_machine_ns: list[int] | None = None,
        **row: Any,
    ) -> Path:
        """Add a run whose n-th call took ``latency_ns[n]``; return its directory."""
        directory = self.path / f"{candidate}-r{round_}"
        directory.mkdir(parents=True)
        n = self.n_calls
        issue = [k * MS for k in range(n)]
        verdict = ["skipped" if k in skipped else "same" for k in range(n)]
        table = {
            "op": pa.array(range(n), pa.int64()),
            "call": pa.array(range(n), pa.int64()),
            "issue_ns": pa.array(issue, pa.int64()),
            "ready_ns": pa.array(issue, pa.int64()),
            "end_ns": pa.array([a + b for a, b in zip(issue, latency_ns, strict=True)], pa.int64()),
            "verdict": pa.array(verdict, pa.dictionary(pa.int32(), pa.string())),
            "reason": pa.array(reasons or ["none"] * n, pa.dictionary(pa.int32(), pa.string())),
            "tid": pa.array([5000] * n, pa.int32()),
            "late_by_target_ns": pa.array(late_ns or [None] * n, pa.int64()),
            "late_by_machine_ns": pa.array(late_by_machine_ns or [0] * n, pa.int64()),
        }
        pq.write_table(pa.table(table), directory / "outcomes.parquet")
        whole = {
            "candidate": candidate,
            "round": round_,
            "position": len(self.runs),
            "fstype": candidate,
            "mkfs": f"mkfs.{candidate} -q",
            "mount_options": "noatime",
            "cache": "recorded",
            "pace": "original",
            "syscalls": n,
            "executed": n - len(skipped),
            "divergent": 0,
            "skipped": len(skipped),
            "makespan_ns": n * MS,
            "lateness_p50_ns": 1000,
            "lateness_p99_ns": 50_000,
            "final_state": {"checked": 10, "mismatched": 0},
            "run": str(directory),
        } | row
        (directory / "run.json").write_text(json.dumps(whole))
        listed = {"roots": [], "skipped": {}, "listed": []}
        (directory / "divergences.json").write_text(json.dumps(listed))
        self.runs.append(whole)
        return directory

    def write(self) -> Path:
        """Write replay.json and return the directory."""
        (self.path / "replay.json").write_text(json.dumps(self.header | {"runs": self.runs}))
        return self.path


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
