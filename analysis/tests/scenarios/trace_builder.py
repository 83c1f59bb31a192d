"""A trace written by hand, with the real schema, for tests of logic and of insights."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa

from spoolscope.traces.parquet import write_table
from spoolscope.traces.schema import SCHEMA, TABLES

MS = 1_000_000
START = 1_700_000_000_000_000_000


class TraceBuilder:
    """Collector of calls, waits, stacks and commits; ``write`` makes a trace directory of them."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.rows: dict[str, list[dict[str, Any]]] = {name: [] for name in TABLES}
        self.meta: dict[str, Any] = {"complete": True, "lost": 0, "tier": "T2"}
        self._stacks: dict[tuple[str, ...], int] = {}
        self._paths: dict[str, int] = {}
        self._seq: dict[int, int] = {}

    def stack(self, frames: str) -> int:
        """Return the id of a stack written as "inner < ... < outer"."""
        names = tuple(f.strip() for f in frames.split("<"))
        if names not in self._stacks:
            self._stacks[names] = stack_id = len(self._stacks) + 1
            for depth, symbol in enumerate(names):
                self._add("stacks", stack_id=stack_id, depth=depth, address=-depth, symbol=symbol)
        return self._stacks[names]

    def path_id(self, path: str) -> int:
        """Return the id of a path below the spool."""
        if path not in self._paths:
            self._paths[path] = path_id = len(self._paths)
            self._add("paths", path_id=path_id, path=path, kind="spool", spool=0)
        return self._paths[path]

    def call(
        self,
        syscall: str,
        at_ns: int,
        oncpu_ns: int = 1000,
        waits: tuple[tuple[str | None, int], ...] = (),
        tid: int = 100,
        comm: str = "lmtp",
        path: str | None = None,
        runq_ns: int = 0,
        preempted_ns: int = 0,
        **columns: Any,
    ) -> dict[str, Any]:
        """Add a call: ``waits`` are (stack, ns), each followed by its part of the run queue."""
        seq = self._seq[tid] = self._seq.get(tid, -1) + 1
        blocked = sum(ns for _, ns in waits)
        row = {
            "ts_ns": START + at_ns,
            "dur_ns": oncpu_ns + blocked + runq_ns + preempted_ns,
            "seq": seq,
            "pid": tid,
            "tid": tid,
            "comm": comm,
            "syscall": syscall,
            "path_id": None if path is None else self.path_id(path),
            "oncpu_ns": oncpu_ns,
            "blocked_ns": blocked,
            "runq_ns": runq_ns,
            "preempted_ns": preempted_ns,
            **columns,
        }
        self._add("syscalls", **row)
        now = START + at_ns
        for frames, ns in waits:
            if frames is not None:
                self.wait(tid, seq, now, ns, "blocked", self.stack(frames))
            now += ns
        for state, ns in (("runq", runq_ns), ("preempted", preempted_ns)):
            if ns and all(frames is not None for frames, _ in waits):
                self.wait(tid, seq, now, ns, state, None)
                now += ns
        return self.rows["syscalls"][-1]

    def wait(
        self, tid: int, seq: int, ts_ns: int, dur_ns: int, state: str, stack_id: int | None
    ) -> None:
        """Add one segment."""
        self._add(
            "segments",
            ts_ns=ts_ns,
            dur_ns=dur_ns,
            pid=tid,
            tid=tid,
            seq=seq,
            state=state,
            stack_id=stack_id,
        )

    def held(self, pid: int, after_ns: int, ns: int, comm: str = "hog") -> None:
        """Set the process that had the CPU during the last wait for one."""
        held = {"held_pid": pid, "held_tid": pid, "held_comm": comm, "held_after_ns": after_ns}
        self.rows["segments"][-1].update(held, held_ns=ns)

    def commit(self, at_ns: int, dur_ns: int, kind: str = "jbd2_commit", **columns: Any) -> None:
        """Add a commit."""
        row = {"trigger": "unknown", "tid": 7, "comm": "jbd2/loop0-8", "txn_id": 1}
        row |= {"ts_ns": START + at_ns, "dur_ns": dur_ns, "kind": kind}
        self._add("commits", **(row | columns))

    def thread(self, pid: int, comm: str, **columns: Any) -> None:
        """Add the life of a process."""
        self._add("threads", **({"pid": pid, "tid": pid, "comm": comm, "kind": "task"} | columns))

    def sleep(
        self,
        at_ns: int,
        dur_ns: int,
        frames: str | None,
        tid: int = 7,
        state: str = "blocked",
        **columns: Any,
    ) -> None:
        """Add an absence of a kernel thread, by default the journal's."""
        stack = None if frames is None else self.stack(frames)
        self.wait(tid, None, START + at_ns, dur_ns, state, stack)
        self.rows["segments"][-1].update(columns)

    def lock_wait(self, tid: int, at_ns: int, dur_ns: int, kind: str, **columns: Any) -> None:
        """Add a wait for a lock."""
        row = {"pid": tid, "tid": tid, "kind": kind, "object": "inode", "owner_shares": False}
        row |= {"ts_ns": START + at_ns, "dur_ns": dur_ns}
        self._add("waits", **(row | columns))

    def block_io(self, at_ns: int, queue_ns: int = 0, device_ns: int = 0, **columns: Any) -> None:
        """Add a request, by default a write of the journal's thread."""
        row = {"dev": 1, "op": "write", "pid": 7, "tid": 7, "comm": "jbd2/loop0-8", "bytes": 4096}
        row |= {"ts_ns": START + at_ns, "queue_ns": queue_ns, "device_ns": device_ns}
        self._add("block_ios", **(row | columns))

    def write(self, **meta: Any) -> Path:
        """Write the trace and return its directory."""
        self.path.mkdir(parents=True, exist_ok=True)
        counts = {}
        for name, rows in self.rows.items():
            spec = TABLES[name]
            arrays = {
                c.name: pa.array([_value(c, row) for row in rows], c.type) for c in spec.columns
            }
            counts[name] = write_table(self.path, name, arrays)
        whole = {
            "schema": SCHEMA,
            "version": "0",
            "kernel": "6.18.0",
            "arch": "x86_64",
            "cpus": 2,
            "start_ns": START,
            "duration_ns": 1000 * MS,
            "spools": [
                {
                    "mount": "/spool",
                    "fstype": "ext4",
                    "options": "rw,noatime",
                    "source": "/dev/loop0",
                    "dev": 1,
                    "size_bytes": 1 << 30,
                }
            ],
            "programs": {"attached": [], "missing": {}},
            "paths_unresolved": 0,
            "calls_in_flight": 0,
            "pseudonymised": True,
            "filter": {},
            "counts": counts,
        }
        (self.path / "meta.json").write_text(json.dumps(whole | self.meta | meta))
        return self.path

    def _add(self, table: str, **row: Any) -> None:
        self.rows[table].append(row)


def _value(column: Any, row: dict[str, Any]) -> Any:
    if column.name in row or column.nullable:
        return row.get(column.name)
    if pa.types.is_string(column.type) or pa.types.is_dictionary(column.type):
        return ""
    return False if pa.types.is_boolean(column.type) else 0
