"""Several segments of one recording as one capture."""

from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from spoolscope.traces.capture import Capture, Records
from spoolscope.traces.packed_calls import PackedCalls

SEEN, WATCHED, BORDER = 1, 7, 16
# Members with string ids; see spoolscope_records.h.
_STRINGS = ("path", "path2", "root", "exe", "target", "name")
# Records of the state at the beginning of every segment: those of the first one count.
_STATE = ("open_file", "held_lock", "mapping", "prelude")
# Members that are numbers of tree records, from 1.
_OF_TREE = {"tree": "parent", "xattr": "tree"}
_SUMS = (
    "calls_unjudged",
    "compat_calls",
    "calls_apart",
    "calls_through_descriptors",
    "aio_calls",
    "records_rescued",
    "requests_not_completed",
    "recorder_cpu_ns",
)
_BEGINNINGS = ("tree", "borders")
_ENDS = ("end_mono_ns", "end_real_ns", "ended", "command_status", "under_way")


def join(segments: list[Capture]) -> Capture:
    """Join consecutive segments, oldest first.

    Ids are renumbered. Records at the beginning of a later segment (state, absences of calls in
    flight) are in the earlier ones already and are left out. If a segment between them is missing,
    the result is not ``closed``.
    """
    first, last = segments[0], segments[-1]
    strings: dict[bytes, int] = {b"": 0}
    stacks: dict[bytes, int] = {first.stacks[0].tobytes(): 0}
    parts: list[dict[str, Records]] = []
    n_tree = 0
    for segment in segments:
        of_strings = _numbers(segment.strings, strings)
        of_stacks = _numbers([row.tobytes() for row in segment.stacks], stacks)
        kept = segment.records if segment is first else _without_beginning(segment)
        part = {k: _renumbered(rows, of_strings, of_stacks) for k, rows in kept.items()}
        for name, member in _OF_TREE.items():
            part[name][member][part[name][member] > 0] += n_tree
        n_tree += len(part["tree"])
        parts.append(part)
    wanted = list(range(first.number, first.number + len(segments)))
    return replace(
        last,
        start_mono_ns=first.start_mono_ns,
        start_real_ns=first.start_real_ns,
        number=first.number,
        closed=all(s.closed for s in segments) and [s.number for s in segments] == wanted,
        bytes_unread=sum(segment.bytes_unread for segment in segments),
        records={k: np.concatenate([part[k] for part in parts]) for k in first.records},
        strings=list(strings),
        stacks=np.frombuffer(b"".join(stacks), np.uint64).reshape(len(stacks), -1),
        symbols={k: v for segment in segments for k, v in segment.symbols.items()},
        meta=_meta([segment.meta for segment in segments]),
        packed=_packed(segments),
    )


def _packed(segments: Sequence[Capture]) -> PackedCalls | None:
    packed = [segment.packed for segment in segments]
    if None in packed:
        return None
    return PackedCalls([chunk for part in packed if part for chunk in part.chunks])


def _numbers(values: Sequence[bytes], known: dict[bytes, int]) -> npt.NDArray[np.uint32]:
    """Return the common id of each value, adding those that are new."""
    return np.array([known.setdefault(value, len(known)) for value in values], np.uint32)


def _renumbered(
    rows: Records, strings: npt.NDArray[np.uint32], stacks: npt.NDArray[np.uint32]
) -> Records:
    rows = rows.copy()
    for member in rows.dtype.names or ():
        if member in _STRINGS:
            rows[member] = strings[rows[member]]
        elif member == "stack":
            rows[member] = stacks[rows[member]]
    return rows


def _without_beginning(segment: Capture) -> dict[str, Records]:
    tasks, switches = segment.records["task"], segment.records["switch"]
    repeated = np.isin(tasks["event"], (WATCHED, BORDER))
    repeated |= (tasks["event"] == SEEN) & (tasks["path"] > 0)
    return {
        **{k: rows[:0] if k in _STATE else rows for k, rows in segment.records.items()},
        "task": tasks[~repeated],
        "switch": switches[switches["in_ns"] >= segment.start_mono_ns],
    }


def _meta(metas: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the meta data of all segments: counters are summed, the end is that of the last."""
    lost: Counter[Hashable] = Counter()
    known: dict[str, Any] = {}
    for meta in metas:
        lost.update(meta.get("lost_records", {}))
        known |= meta
    for member in (member for member in _ENDS if member not in metas[-1]):
        known.pop(member, None)
    known |= {k: sum(meta.get(k, 0) for meta in metas) for k in _SUMS if k in known}
    known["unjudged"] = [calls for meta in metas for calls in meta.get("unjudged", [])]
    known |= {k: metas[0].get(k) for k in _BEGINNINGS}
    return {**known, "lost_records": dict(lost)}
