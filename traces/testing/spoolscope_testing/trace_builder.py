"""Traces of an explanation: calls, their waits and stacks, commits, in nanoseconds."""

from pathlib import Path
from typing import Any

from spoolscope_testing.trace_rows import MS, START, Row, TraceRows

__all__ = ["MS", "START", "TraceBuilder"]


class TraceBuilder:
    """Collector of calls, waits, stacks and commits; ``write`` makes a trace directory of them."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.meta: Row = {}
        self._rows = TraceRows()
        self._seq: dict[int, int] = {}
        self.rows = self._rows.tables
        self.stack = self._rows.stack

    def path_id(self, path: str) -> int:
        """Return the number of a path below the spool."""
        return self._rows.path(path)

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
    ) -> Row:
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
        self.add("syscalls", **row)
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
        self,
        tid: int,
        seq: int | None,
        ts_ns: int,
        dur_ns: int,
        state: str,
        stack_id: int | None,
    ) -> None:
        """Add one segment."""
        self.add(
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
        self.add("commits", **(row | columns))

    def thread(self, pid: int, comm: str, **columns: Any) -> None:
        """Add the life of a process."""
        self.add("threads", **({"pid": pid, "tid": pid, "comm": comm, "kind": "task"} | columns))

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
        self.add("waits", **(row | columns))

    def block_io(self, at_ns: int, queue_ns: int = 0, device_ns: int = 0, **columns: Any) -> None:
        """Add a request, by default a write of the journal's thread."""
        row = {"dev": 1, "op": "write", "pid": 7, "tid": 7, "comm": "jbd2/loop0-8", "bytes": 4096}
        row |= {"ts_ns": START + at_ns, "queue_ns": queue_ns, "device_ns": device_ns}
        self.add("block_ios", **(row | columns))

    def write(self, **meta: Any) -> Path:
        """Write the trace and return its directory."""
        return self._rows.write(self.path, **(self.meta | meta))

    def add(self, table: str, **row: Any) -> Row:
        """Add a row of any table."""
        return self._rows.add(table, **row)
