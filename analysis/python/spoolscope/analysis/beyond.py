"""Sentences on accesses to the spool beside the recorded system calls."""

from collections import Counter
from typing import Any

import pyarrow.compute as pc

from spoolscope.traces.trace import Trace


def beyond_calls(trace: Trace) -> list[str]:
    """Return a sentence on each kind of access to the spool that no recorded call shows."""
    return [*_mappings(trace), *_uring(trace), *_counted(trace), *_edge(trace)]


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


_COUNTED = {
    "compat_calls": "{:,} calls of 32-bit programs were seen, not decoded: what they did on the "
    "spool is in no table, no explanation and no replay.",
    "calls_apart": "{:,} calls were made by threads that do not share the working directory or the "
    "descriptors of their process (unshare): their names may be wrong, and a replay makes them as "
    "if both were shared.",
    "calls_through_descriptors": "{:,} calls were by names below that of an open directory of the "
    "spool (/proc/self/fd/N/...), as tar --xattrs makes them: they are in no table and no replay.",
    "aio_calls": "{:,} calls of io_submit had requests for files of the spool: what these read and "
    "wrote is in no table and no replay.",
}
"""Sentences on calls that meta.json counts."""


def _counted(trace: Trace) -> list[str]:
    return [text.format(n) for key, text in _COUNTED.items() if (n := trace.meta.get(key, 0))]


_WHY = {
    "not looked at": "before the recorder had looked at its mounts, which have the spool; begin "
    "the recording when it runs",
    "many names": "where it has more, or longer, names of the spool than are compared; mount it "
    "there at fewer and shorter places",
}
_SHOWN = 5


def unjudged_calls(meta: dict[str, Any]) -> list[str]:
    """Return a sentence on each program of a container or chroot whose calls were not judged.

    Args:
        meta: meta.json of the trace.
    """
    found: Counter[tuple[str, str, str]] = Counter()
    pids: dict[tuple[str, str, str], set[int]] = {}
    for one in meta.get("unjudged") or []:
        who = (one["comm"], one["cgroup"], one["why"])
        found[who] += one["calls"]
        pids.setdefault(who, set()).add(one["pid"])  # several segments may name it
    sentences = [
        f"{n:,} calls by absolute names of {_named(comm, group, pids[comm, group, why])} came "
        f"{_WHY[why]}: those about it are in no table."
        for (comm, group, why), n in found.most_common(_SHOWN)
    ]
    more = len(found) - _SHOWN
    return [*sentences, f"So did those of {more:,} more programs."] if more > 0 else sentences


def _named(comm: str, group: str, pids: set[int]) -> str:
    which = f"process {min(pids)}" if len(pids) == 1 else f"{len(pids):,} processes"
    unit = f", {group.rsplit('/', 1)[-1]}" if group.strip("/") else ""
    return f"{comm or 'a thread'} ({which}{unit})"


def _edge(trace: Trace) -> list[str]:
    """Return sentences on links and renames between a subdirectory spool and its filesystem."""
    edge = trace.meta.get("edge") or {}
    said = []
    if n := edge.get("linked_elsewhere", 0):
        said.append(
            f"{n:,} files have names outside the recorded directory, too: what was done by these "
            "is in no table."
        )
    came, went = (
        edge.get(f"renamed_{way}", 0) + edge.get(f"linked_{way}", 0) for way in ("in", "out")
    )
    if came or went:
        said.append(
            f"{came:,} files or directories came into the recorded one by rename or link, and "
            f"{went:,} left it: what was done with them outside is in no table."
        )
    return said
