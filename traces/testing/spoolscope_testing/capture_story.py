"""Captures written by hand, event by event, in the layout of their records."""

from typing import Any

import numpy as np

from spoolscope.traces.calls import CALLS
from spoolscope.traces.capture import RECORDS, ROWS, Capture
from spoolscope.traces.flat import DTYPES


class CaptureStory:
    """Builder of a capture, one event after the other, 10 ns apart."""

    def __init__(self, fstype: str = "ext4") -> None:
        self.capture = Capture(0, 0, closed=True)
        self.capture.meta = {"spools": [{"mount": "/spool", "dev": 7, "fstype": fstype}]}
        self.records: dict[str, list[Any]] = {name: [] for name in RECORDS.values()}
        self.now = 0
        self.seq: dict[int, int] = {}

    def string(self, text: str) -> int:
        """Return the number of a new string."""
        self.capture.strings.append(text.encode())
        return len(self.capture.strings) - 1

    def add(self, kind: str, **members: Any) -> Any:
        """Add a record and return it; texts become numbers of strings."""
        record = np.zeros(1, DTYPES[kind])[0]
        for name, value in members.items():
            record[name] = self.string(value) if isinstance(value, str) else value
        self.records[kind].append(record)
        return record

    def task(self, event: int, pid: int, **members: Any) -> None:
        """Add an event of a process."""
        self.now += 10
        self.add("task", **{"ts_ns": self.now, "event": event, "pid": pid, "tid": pid, **members})

    def call(self, pid: int, name: str, *args: Any, ret: int = 0, **members: Any) -> None:
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
        """Return the capture of all events."""
        self.capture.records = {
            name: np.array(rows, ROWS[name]) for name, rows in self.records.items()
        }
        return self.capture
