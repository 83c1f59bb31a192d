"""What happened on the spool beside the recorded system calls, in plain sentences."""

import pyarrow.compute as pc

from spoolscope.traces.trace import Trace


def beyond_calls(trace: Trace) -> list[str]:
    """Return a sentence on each way to the spool that no recorded call shows."""
    return [*_mappings(trace), *_uring(trace), *_compat(trace), *_unjudged(trace)]


def _mappings(trace: Trace) -> list[str]:
    if not (n := trace.meta["counts"].get("faults", 0)):
        return []
    columns = trace.table("faults", ["major", "write"])
    major, written = (pc.sum(columns[name]).as_py() for name in ("major", "write"))
    return [
        f"{n:,} page faults on mapped files of the spool ({major:,} major, {written:,} writes) are "
        "in the table faults; a replay touches these pages, but not those mapped already."
    ]


def _uring(trace: Trace) -> list[str]:
    if not (n := trace.meta["counts"].get("uring_ops", 0)):
        return []
    return [
        f"{n:,} io_uring operations on the spool are in the table uring_ops, without the names "
        "they were given; a replay does not repeat them, so files they made or changed may differ."
    ]


def _compat(trace: Trace) -> list[str]:
    if not (n := trace.meta.get("compat_calls", 0)):
        return []
    return [
        f"{n:,} calls of 32-bit programs were seen, not decoded: what they did on the spool is in "
        "no table, no explanation and no replay."
    ]


def _unjudged(trace: Trace) -> list[str]:
    if not (n := trace.meta.get("calls_unjudged", 0)):
        return []
    return [
        f"{n:,} calls by absolute names came from containers or chroots of which the recorder did "
        "not know all names of the spool: those that were about it are in no table."
    ]
