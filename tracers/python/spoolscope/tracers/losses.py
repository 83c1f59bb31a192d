"""Losses of a capture: holes in each thread's seq, and counters of other records.

A hole has calls that were lost and calls that were left out to keep to --max-overhead; the first
record after it states how many were left out.
"""

from typing import Any

import numpy as np

from spoolscope.tracers.lives import END, EXIT, Lives
from spoolscope.traces.capture import RECORDS, Capture
from spoolscope.traces.columns import symbols


def loss_columns(capture: Capture, lives: Lives) -> dict[str, Any]:
    """Return one row per hole in a thread's numbers, and one per kind of other lost records.

    Args:
        capture: A capture whose numbering was continued.
        lives: The return value of continue_numbering() for it.
    """
    rows = [*_holes(capture, lives), *_tails(capture, lives), *_counted(capture)]
    rows += _of_nobody(capture, sum(row[-1] for row in rows if row[0] == "syscall"))
    names = ("kind", "pid", "tid", "first_seq", "last_seq", "after_ns", "before_ns", "n")
    columns = dict(zip(names, zip(*rows, strict=True), strict=True)) if rows else {}
    out: dict[str, Any] = {"kind": np.array(columns.get("kind", ()), object)}
    for name in names[1:]:
        values = np.array([-1 if v is None else v for v in columns.get(name, ())], np.int64)
        out[name] = np.ma.masked_less(values, 0) if name not in ("pid", "tid", "n") else values
    return out


def shed_columns(capture: Capture) -> dict[str, Any]:
    """Return the levels at which data were left out to keep to a budget, with their times."""
    sheds = capture.records["shed"]
    shift = capture.start_real_ns - capture.start_mono_ns
    return {
        "ts_ns": sheds["ts_ns"].astype(np.int64) + shift,
        "level": symbols(sheds["level"], ["nothing", "stacks", "7/8 data", "63/64 data"]),
        "overhead_ppm": sheds["overhead_ppm"].astype(np.int32),
    }


def _holes(capture: Capture, lives: Lives) -> "list[tuple[Any, ...]]":
    calls = capture.records["syscall"]
    shift = capture.start_real_ns - capture.start_mono_ns
    rows = []
    order = lives.in_order(calls, lives.of_calls)
    life, seq = lives.of_calls[order], calls["seq"][order].astype(np.int64)
    same = np.zeros(len(order), np.bool_)
    same[1:] = life[1:] == life[:-1]
    holed = ~same & (seq > lives.start[life])
    holed[1:] |= same[1:] & (np.diff(seq) > 1)
    for i in np.nonzero(holed)[0].tolist():
        call = calls[order[i]]
        previous = int(calls["end_ns"][order[i - 1]] if same[i] else lives.before_ns[life[i]])
        after = previous + shift if previous else None
        before = int(call["start_ns"]) + shift
        first = int(seq[i - 1]) + 1 if same[i] else int(lives.start[life[i]])
        last = int(seq[i]) - 1
        pid, tid = int(call["pid"]), int(call["tid"])
        where = (pid, tid, first, last, after, before)
        rows += _parted(where, last - first + 1, int(call["skipped"]))
    return rows


def _parted(where: "tuple[Any, ...]", n: int, skipped: int) -> "list[tuple[Any, ...]]":
    """Return a row for calls left out on purpose and one for lost ones, both of the whole hole."""
    parts = (("shed", min(skipped, n)), ("syscall", n - min(skipped, n)))
    return [(kind, *where, count) for kind, count in parts if count]


def _tails(capture: Capture, lives: Lives) -> "list[tuple[Any, ...]]":
    """Return rows for calls after a thread's last record, which only the kernel's count shows."""
    calls, tasks = capture.records["syscall"], capture.records["task"]
    shift = capture.start_real_ns - capture.start_mono_ns
    have = lives.start.copy()
    np.maximum.at(have, lives.of_calls, calls["seq"].astype(np.int64) + 1)
    last_end = np.where(lives.before_ns > 0, lives.before_ns, -1)
    np.maximum.at(last_end, lives.of_calls, calls["end_ns"].astype(np.int64))
    rows = []
    last_words = tasks[np.isin(tasks["event"], (EXIT, END)) & (tasks["n_calls"] > 0)]
    of_tasks = lives.of(last_words["tid"], last_words["ts_ns"])
    for life, task in zip(of_tasks.tolist(), last_words, strict=True):
        first, counted = int(have[life]), int(lives.base[life]) + int(task["n_calls"])
        if counted > first:
            after = int(last_end[life]) + shift if last_end[life] >= 0 else None
            before, pid, tid = int(task["ts_ns"]) + shift, int(task["pid"]), int(task["tid"])
            where = (pid, tid, first, counted - 1, after, before)
            rows += _parted(where, counted - first, int(task["skipped"]))
    return rows


def _counted(capture: Capture) -> "list[tuple[Any, ...]]":
    """Return a row for each other kind of lost records; these are counted, not located."""
    rows = []
    for kind, n in capture.meta.get("lost_records", {}).items():
        name = RECORDS.get(int(kind), "task_state")
        if name != "syscall":
            rows.append((name, 0, 0, None, None, None, None, int(n)))
    return rows


def _of_nobody(capture: Capture, located: int) -> "list[tuple[Any, ...]]":
    """Return a row for lost calls that are not located: their threads left no record.

    Only a recording that was not divided, or was joined again, has such a row: in one of several
    segments, a call lost around a border is located in the next segment.
    """
    counted = int(capture.meta.get("lost_records", {}).get("1", 0))
    if capture.number > 1 or "ended" not in capture.meta or counted <= located:
        return []
    return [("syscall", 0, 0, None, None, None, None, counted - located)]
