"""Small traces written by hand with the schema, one call per line."""

import json
import subprocess
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from spoolscope.replay.engine import Engine
from spoolscope.replay.outcomes import read_outcomes
from spoolscope.replay.plan import build
from spoolscope.traces.native import find_binary
from spoolscope.traces.parquet import write_table
from spoolscope.traces.schema import SCHEMA, TABLES
from spoolscope.traces.trace import Trace

START = 1_700_000_000_000_000_000
MS = 1_000_000


class Script:
    """Collects the rows of a trace."""

    def __init__(self) -> None:
        self.paths: dict[tuple[str, str], int] = {}
        self.calls: list[dict[str, Any]] = []
        self.threads: dict[int, dict[str, Any]] = {}
        self.earlier_lives: list[dict[str, Any]] = []
        self.events: list[dict[str, Any]] = []
        self.tree: list[dict[str, Any]] = []
        self.open_files: list[dict[str, Any]] = []
        self.snapshot = "none"
        self.more: dict[str, list[dict[str, Any]]] = {}

    def path(self, name: str, kind: str = "spool") -> int:
        return self.paths.setdefault((name, kind), len(self.paths))

    def thread(self, tid: int, pid: int | None = None, **values: Any) -> None:
        self.threads[tid] = {"tid": tid, "pid": pid or tid, **values}

    def fork(self, parent: int, child: int, at_ms: float, **values: Any) -> None:
        ts = START + int(at_ms * MS)
        if child in self.threads:
            self.earlier_lives.append(self.threads[child])
        self.thread(child, parent_tid=parent, parent_pid=parent, start_ns=ts, **values)
        self.event("fork", child, at_ms, parent_tid=parent)

    def event(self, event: str, tid: int, at_ms: float, **values: Any) -> None:
        ts = START + int(at_ms * MS)
        self.events.append({"ts_ns": ts, "pid": tid, "tid": tid, "event": event, **values})

    def call(
        self,
        tid: int,
        at_ms: float,
        syscall: str,
        path: str | None = None,
        ret: int = 0,
        **values: Any,
    ) -> None:
        """Add a call of 0.1 ms; ``ret`` below 0 is -errno."""
        if tid not in self.threads:
            self.thread(tid)
        kind = values.pop("kind", "spool")
        second, second_kind = values.pop("path2", None), values.pop("kind2", "spool")
        row = {
            "ts_ns": START + int(at_ms * MS),
            "dur_ns": int(values.pop("dur_ms", 0.1) * MS),
            "pid": self.threads[tid]["pid"],
            "tid": tid,
            "syscall": syscall,
            "ret": -1 if ret < 0 else ret,
            "errno": max(-ret, 0),
            "path_id": None if path is None else self.path(path, kind),
            "path2_id": None if second is None else self.path(second, second_kind),
            "path_base": values.pop("base", 0 if path is None else 1),
            "path2_base": 0 if second is None or second_kind == "text" else 1,
            **values,
        }
        self.calls.append(row)

    def entry(
        self, path: str, ino: int, mode: int = 0o100644, size: int = 0, **values: Any
    ) -> None:
        row = {"path_id": self.path(path), "ino": ino, "mode": mode, "size": size, **values}
        self.tree.append(row)

    def write(self, directory: Path, spools: list[dict[str, Any]] | None = None) -> Path:
        """Write the trace directory and return it."""
        directory.mkdir(parents=True)
        calls = sorted(self.calls, key=lambda row: row["ts_ns"])
        made: Counter[int] = Counter()
        for row in calls:
            row["seq"] = made[row["tid"]]
            made[row["tid"]] += 1
        paths = [
            {"path_id": i, "path": name, "kind": kind, "spool": 0 if kind == "spool" else None}
            for (name, kind), i in self.paths.items()
        ]
        tables = {
            "syscalls": calls,
            "threads": [
                {"kind": "task", **row} for row in (*self.earlier_lives, *self.threads.values())
            ],
            "task_events": sorted(self.events, key=lambda row: row["ts_ns"]),
            "tree": self.tree,
            "open_files": self.open_files,
            "paths": paths,
            **self.more,
        }
        counts = {name: _write(directory, name, tables.get(name, [])) for name in TABLES}
        last = max((row["ts_ns"] + row["dur_ns"] for row in calls), default=START)
        meta = {
            "schema": SCHEMA, "version": "0", "start_ns": START, "duration_ns": last - START,
            "spools": spools or [{"mount": "/srv/mail", "fstype": "ext4", "dev": 1}],
            "complete": True, "lost": 0, "snapshot": {"kind": self.snapshot},
            "pseudonymised": False, "counts": counts,
        }  # fmt: skip
        (directory / "meta.json").write_text(json.dumps(meta))
        return directory


def _write(directory: Path, name: str, rows: list[dict[str, Any]]) -> int:
    columns = {}
    for column in TABLES[name].columns:
        values = [row.get(column.name) for row in rows]
        if not column.nullable:
            text = pa.types.is_dictionary(column.type) or column.type == pa.string()
            blank: Any = "" if text else False if pa.types.is_boolean(column.type) else 0
            values = [blank if value is None else value for value in values]
        plain = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
        columns[column.name] = pa.array(values, plain)
    return write_table(directory, name, columns)


@pytest.fixture
def script() -> Script:
    return Script()


@pytest.fixture
def target(tmp_path) -> Path:
    """An empty directory to replay into."""
    path = tmp_path / "target"
    path.mkdir()
    return path


@pytest.fixture
def execute(tmp_path: Path) -> Callable[..., tuple[Any, dict[str, Any]]]:
    """Return a function that runs the engine alone, so that the target can be examined afterwards.

    It returns the outcomes, and how the target differs from the trace.
    """

    def run(
        script: Script, target: Path, *words: str, pace: str = "afap"
    ) -> tuple[Any, dict[str, Any]]:
        plan, outcomes = tmp_path / "plan", tmp_path / "outcomes"
        build(Trace.open(script.write(tmp_path / "trace")), plan)
        command = [find_binary("spoolscope-replay"), "run", plan, "--target", target]
        done = subprocess.run(
            [*command, "--pace", pace, "--outcomes", outcomes, *words],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return read_outcomes(outcomes), Engine(plan).verify(target)

    return run
