"""Traces of processes, one call per line, in milliseconds from the begin of the recording."""

from collections import Counter
from pathlib import Path
from typing import Any

from spoolscope_testing.trace_rows import MS, START, Row, TraceRows


class Script:
    """Collector of the calls and lives of processes.

    Attributes:
        calls: Rows of calls, in any order; further lists likewise.
        threads: The latest life of each thread number.
        snapshot: Kind of the walk that found ``tree``.
        more: Rows of other tables.
    """

    def __init__(self) -> None:
        self._rows = TraceRows()
        self.path = self._rows.path
        self.calls: list[Row] = []
        self.threads: dict[int, Row] = {}
        self.earlier_lives: list[Row] = []
        self.events: list[Row] = []
        self.tree: list[Row] = []
        self.open_files: list[Row] = []
        self.snapshot = "none"
        self.more: dict[str, list[Row]] = {}

    def thread(self, tid: int, pid: int | None = None, **values: Any) -> None:
        """Set the life of a thread."""
        self.threads[tid] = {"tid": tid, "pid": pid or tid, **values}

    def fork(self, parent: int, child: int, at_ms: float, **values: Any) -> None:
        """Begin the life of a child."""
        ts = START + int(at_ms * MS)
        if child in self.threads:
            self.earlier_lives.append(self.threads[child])
        self.thread(child, parent_tid=parent, parent_pid=parent, start_ns=ts, **values)
        self.event("fork", child, at_ms, parent_tid=parent)

    def event(self, event: str, tid: int, at_ms: float, **values: Any) -> None:
        """Add an event of a thread."""
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
        row: Row = {
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
        """Add a name of the tree at the start."""
        row = {"path_id": self.path(path), "ino": ino, "mode": mode, "size": size, **values}
        self.tree.append(row)

    def write(self, directory: Path, spools: list[Row] | None = None) -> Path:
        """Write the trace and return its directory."""
        calls = sorted(self.calls, key=lambda row: row["ts_ns"])
        made: Counter[int] = Counter()
        for row in calls:
            row["seq"] = made[row["tid"]]
            made[row["tid"]] += 1
        lives = (*self.earlier_lives, *self.threads.values())
        self._rows.tables |= {
            "syscalls": calls,
            "threads": [{"kind": "task"} | row for row in lives],
            "task_events": sorted(self.events, key=lambda row: row["ts_ns"]),
            "tree": self.tree,
            "open_files": self.open_files,
            **self.more,
        }
        last = max((row["ts_ns"] + row["dur_ns"] for row in calls), default=START)
        return self._rows.write(
            directory,
            duration_ns=last - START,
            spools=spools or [{"mount": "/srv/mail", "fstype": "ext4", "dev": 1}],
            snapshot={"kind": self.snapshot},
            pseudonymised=False,
        )
