"""Results of replays written by hand: runs with outcomes."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from spoolscope_testing.trace_rows import MS, Row


class ReplayBuilder:
    """Writer of the output of a replay: runs with outcomes and, if wanted, recorded traces."""

    def __init__(self, path: Path, trace: Path, n_calls: int, **header: Any) -> None:
        self.path = path
        self.n_calls = n_calls
        self.header = {"trace": str(trace), "pace": "original", "rounds": 1, "seed": 1} | header
        self.runs: list[Row] = []

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
            "late_by_target_ns": pa.array(late_ns, pa.int64())
            if late_ns
            else pa.nulls(n, pa.int64()),
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
        listed: Row = {"roots": [], "skipped": {}, "listed": []}
        (directory / "divergences.json").write_text(json.dumps(listed))
        self.runs.append(whole)
        return directory

    def write(self) -> Path:
        """Write replay.json and return the directory."""
        (self.path / "replay.json").write_text(json.dumps(self.header | {"runs": self.runs}))
        return self.path
