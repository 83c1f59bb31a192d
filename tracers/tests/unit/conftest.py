"""A builder of captures, event by event, and other fixtures."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from spoolscope.tracers.path_ids import PathIds
from spoolscope.tracers.resolve import resolve
from spoolscope.tracers.strace.importer import Begun, import_strace
from spoolscope.traces.calls import CALLS
from spoolscope.traces.capture import RECORDS, ROWS, Capture
from spoolscope.traces.flat import DTYPES
from spoolscope.traces.private import Hiding
from spoolscope.traces.trace import Trace

Import = Callable[..., Trace]


class Story:
    """Builds a capture, one event after the other."""

    def __init__(self, fstype: str = "ext4") -> None:
        self.capture = Capture(0, 0, closed=True)
        self.capture.meta = {"spools": [{"mount": "/spool", "dev": 7, "fstype": fstype}]}
        self.records: dict[str, list[np.void]] = {name: [] for name in RECORDS.values()}
        self.now = 0
        self.seq: dict[int, int] = {}

    def string(self, text: str) -> int:
        self.capture.strings.append(text.encode())
        return len(self.capture.strings) - 1

    def add(self, kind: str, **members: object) -> np.void:
        record = np.zeros(1, DTYPES[kind])[0]
        for name, value in members.items():
            record[name] = self.string(value) if isinstance(value, str) else value
        self.records[kind].append(record)
        return record

    def task(self, event: int, pid: int, **members: object) -> None:
        self.now += 10
        self.add("task", **{"ts_ns": self.now, "event": event, "pid": pid, "tid": pid, **members})

    def call(self, pid: int, name: str, *args: object, ret: int = 0, **members: object) -> None:
        """Add a call with arguments by position; texts are its paths."""
        self.now += 10
        tid = int(members.get("tid", pid))
        texts = [self.string(arg) for arg in args if isinstance(arg, str)]
        record = self.add(
            "syscall",
            **{
                "start_ns": self.now - 5,
                "end_ns": self.now,
                "ret": ret,
                "pid": pid,
                "tid": tid,
                "call": CALLS[name].id,
                "seq": self.seq.get(tid, 0),
                "dev": 7 if "ino" in members else 0,
                **members,
            },
        )
        self.seq[tid] = self.seq.get(tid, 0) + 1
        for i, arg in enumerate(args):
            if not isinstance(arg, str):
                record["args"][i] = int(arg) & 0xFFFF_FFFF_FFFF_FFFF
        record["path"], record["path2"] = [*texts, 0, 0][:2]

    def opened(self, pid: int, path: str, fd: int, ino: int, flags: int = 0) -> None:
        """Add a successful open by an absolute or relative path."""
        self.call(pid, "open", path, flags, 0, ret=fd, ino=ino)

    def name(self, path: str, ino: int, mode: int = 0o100600, **members: int) -> None:
        """Add a name in the tree that the walk sees now."""
        self.seen_in(0, path, ino, mode, **members)

    def seen_in(
        self, parent: int, name: str, ino: int, mode: int = 0o100600, **members: int
    ) -> None:
        """Add a name that the walk sees now in a directory, given by its record number."""
        given = {"nlink": 1, **members}
        self.now += 10
        self.add(
            "tree", ts_ns=self.now, ino=ino, dev=7, mode=mode, path=name, parent=parent, **given
        )

    def end(self) -> Capture:
        self.capture.records = {
            name: np.array(rows, ROWS[name]) for name, rows in self.records.items()
        }
        return self.capture

    def rows(self) -> list[dict[str, Any]]:
        """Return the tree at the start, in the order of its table, with whole paths."""
        capture = self.end()
        resolved = resolve(capture)
        ids = PathIds(capture, resolved)
        found: list[dict[str, Any]] = []
        for part in resolved.state.tree(ids.id, ids.text_id, ids.quiet_ids):
            columns = [part[name].tolist() for name in part]
            found += [dict(zip(part, row, strict=True)) for row in zip(*columns, strict=True)]
        paths: dict[int, str] = {}
        for part in ids.columns(None):
            paths.update(zip(part["path_id"].tolist(), part["path"].to_pylist(), strict=True))
        whole = {number: f"/spool/{path}".rstrip("/") for number, path in paths.items()}
        return [{**row, "path": whole[row["path_id"]]} for row in found]

    def tree(self) -> dict[str, int]:
        """Return the inode of every name at the start that the walk has met."""
        return {row["path"]: row["ino"] for row in self.rows()}


@pytest.fixture
def new_story() -> type[Story]:
    """Return the class; ``new_story()`` begins an empty capture."""
    return Story


@pytest.fixture
def imported(tmp_path: Path) -> Import:
    """Return ``imported({name: text})``, which returns the trace of these files of strace."""

    def make(
        files: dict[str, str],
        hiding: Hiding | None = None,
        root: str = "/spool",
        pid: int | None = None,
        cwd: str | None = None,
    ) -> Trace:
        for name, text in files.items():
            (tmp_path / name).write_text(text)
        paths, output = [tmp_path / name for name in files], tmp_path / "trace"
        if output.exists():
            output = tmp_path / "trace2"
        begun = Begun(pid, Path(cwd) if cwd else None)
        import_strace(paths, Path(root), output, hiding, lambda _what, _fraction: None, begun)
        return Trace.open(output)

    return make


@pytest.fixture
def calls() -> Callable[[Trace], list[dict[str, Any]]]:
    """Return ``calls(trace)``, which returns its calls in order of time, with their names."""

    def rows(trace: Trace) -> list[dict[str, Any]]:
        paths = {row["path_id"]: row["path"] for row in trace.table("paths").to_pylist()}
        found = trace.table("syscalls").to_pylist()
        for row in found:
            row["path"], row["path2"] = paths.get(row["path_id"]), paths.get(row["path2_id"])
        return found

    return rows
