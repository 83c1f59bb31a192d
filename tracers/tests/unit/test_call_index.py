"""Calls are found as a search through all of them finds them."""

import random

import numpy as np

from spoolscope.tracers.call_index import CallIndex
from spoolscope.traces.capture import ROWS


def calls_of(threads: int, per_thread: int, seed: int) -> np.ndarray:
    """Return calls of several threads, in order of their ends; none of a thread overlap."""
    draw, rows = random.Random(seed), []
    for tid in range(1, threads + 1):
        now = draw.randrange(1000)
        for seq in range(per_thread):
            begin = now + draw.randrange(3)
            now = begin + draw.randrange(1, 20)
            rows.append((begin, now, tid, seq))
    calls = np.zeros(len(rows), ROWS["syscall"])
    for name, values in zip(
        ("start_ns", "end_ns", "tid", "seq"), zip(*rows, strict=True), strict=True
    ):
        calls[name] = values
    return calls[np.argsort(calls["end_ns"], kind="stable")]


def test_a_call_is_found_by_thread_and_start() -> None:
    calls = calls_of(threads=5, per_thread=40, seed=1)
    known = {(int(c["tid"]), int(c["start_ns"])): row for row, c in enumerate(calls)}
    asked = [(tid, at) for tid in range(7) for at in range(0, 1500, 3)] + list(known)
    tids, starts = (np.array(column, np.uint64) for column in zip(*asked, strict=True))
    index = CallIndex(calls)
    wanted = [known.get(pair, -1) for pair in asked]
    assert index.row(tids, starts).tolist() == wanted
    assert index.seq(tids, starts).tolist() == [
        int(calls["seq"][row]) if row >= 0 else -1 for row in wanted
    ]
    assert index.end_of(np.array([0, -1])).tolist() == [int(calls["end_ns"][0]), -1]


def test_a_call_is_found_by_thread_and_time() -> None:
    calls = calls_of(threads=4, per_thread=30, seed=2)
    asked = [(tid, at) for tid in range(6) for at in range(0, 2000, 7)]
    tids, times = (np.array(column, np.int64) for column in zip(*asked, strict=True))
    wanted = [
        next(
            (int(c["seq"]) for c in calls if c["tid"] == tid and c["start_ns"] <= at < c["end_ns"]),
            -1,
        )
        for tid, at in asked
    ]
    assert CallIndex(calls).seq_at(tids, times).tolist() == wanted
    assert max(wanted) > 0


def test_nothing_is_found_among_no_calls() -> None:
    index, some = CallIndex(np.zeros(0, ROWS["syscall"])), np.array([1, 2], np.uint64)
    assert index.row(some, some).tolist() == index.seq_at(some, some).tolist() == [-1, -1]
    assert index.seq(some, some).tolist() == [-1, -1]
