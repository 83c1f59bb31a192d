"""What is missing from a capture: holes in each thread's seq, and counters of other records."""

from typing import Any

import numpy as np

from spoolscope.tracers.resolve import END, EXIT
from spoolscope.traces.capture import RECORDS, Capture


def loss_columns(capture: Capture) -> dict[str, Any]:
    """One row per hole in a thread's numbering, one per kind of other lost records."""
    rows = [*_holes(capture), *_tails(capture), *_counted(capture)]
    names = ("kind", "pid", "tid", "first_seq", "last_seq", "after_ns", "before_ns", "n")
    columns = dict(zip(names, zip(*rows, strict=True), strict=True)) if rows else {}
    out: dict[str, Any] = {"kind": np.array(columns.get("kind", ()), object)}
    for name in names[1:]:
        values = np.array([-1 if v is None else v for v in columns.get(name, ())], np.int64)
        out[name] = np.ma.masked_less(values, 0) if name not in ("pid", "tid", "n") else values
    return out


def _holes(capture: Capture) -> "list[tuple[Any, ...]]":
    calls = capture.records["syscall"]
    shift = capture.start_real_ns - capture.start_mono_ns
    rows = []
    order = np.lexsort((calls["seq"], calls["tid"]))
    calls = calls[order]
    tid, seq = calls["tid"], calls["seq"].astype(np.int64)
    same = np.zeros(len(calls), np.bool_)
    same[1:] = tid[1:] == tid[:-1]
    expected = np.where(same, np.roll(seq, 1) + 1, 0)
    for i in np.nonzero(seq != expected)[0].tolist():
        after = int(calls["end_ns"][i - 1]) + shift if same[i] else None
        before = int(calls["start_ns"][i]) + shift
        first, last = int(expected[i]), int(seq[i]) - 1
        pid = int(calls["pid"][i])
        rows.append(("syscall", pid, int(tid[i]), first, last, after, before, last - first + 1))
    return rows


def _tails(capture: Capture) -> "list[tuple[Any, ...]]":
    """The kernel counted more calls of a thread than its last record's seq says."""
    calls, tasks = capture.records["syscall"], capture.records["task"]
    shift = capture.start_real_ns - capture.start_mono_ns
    recorded: dict[int, int] = {}
    last_end: dict[int, int] = {}
    for tid, seq, end in zip(
        calls["tid"].tolist(), calls["seq"].tolist(), calls["end_ns"].tolist(), strict=True
    ):
        if seq >= recorded.get(tid, 0):
            recorded[tid], last_end[tid] = seq + 1, end
    rows = []
    for task in tasks[np.isin(tasks["event"], (EXIT, END)) & (tasks["n_calls"] > 0)]:
        tid, counted = int(task["tid"]), int(task["n_calls"])
        have = recorded.get(tid, 0)
        if counted > have:
            after = last_end[tid] + shift if tid in last_end else None
            before = int(task["ts_ns"]) + shift
            lost = counted - have
            rows.append(("syscall", int(task["pid"]), tid, have, counted - 1, after, before, lost))
    return rows


def _counted(capture: Capture) -> "list[tuple[Any, ...]]":
    """Records of other kinds are counted where they were lost, not located."""
    rows = []
    for kind, n in capture.meta.get("lost_records", {}).items():
        name = RECORDS.get(int(kind), "task_state")
        if name != "syscall":
            rows.append((name, 0, 0, None, None, None, None, int(n)))
    return rows
