"""Calls that had not returned, and the cause of a freeze, in the form of meta.json."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from spoolscope.tracers.inodes import Inodes
from spoolscope.traces.capture import Capture

Found = Mapping[str, Any]


def under_way_meta(
    capture: Capture, calls: Sequence[Found], meta: Found, inodes: Callable[[], Inodes]
) -> list[dict[str, Any]]:
    """Return ``under_way`` of meta.json: the calls that had not returned at the end.

    Args:
        capture: The capture.
        calls: Their descriptions by the recorder.
        meta: The rest of meta.json: start_ns, duration_ns.
        inodes: Returns the names of files by inode.
    """
    return [_going_on(capture, call, "start_ns", meta, inodes, _IN_FLIGHT) for call in calls]


def _going_on(
    capture: Capture,
    found: Found,
    since: str,
    meta: Found,
    inodes: Callable[[], Inodes],
    kept: tuple[str, ...],
) -> dict[str, Any]:
    path_id = None
    if found["ino"]:
        file = (np.array([found["dev"]]), np.array([found["ino"]], np.uint64))
        now = np.array([capture.start_mono_ns + meta["duration_ns"]], np.uint64)
        path_id = _known(int(inodes().path(*file, now)[0]))
    return {
        "ts_ns": int(found[since]) + capture.start_real_ns - capture.start_mono_ns,
        "dur_ns": int(found["ns"]),
        "path_id": path_id,
        **{name: found[name] for name in kept},
    }


def frozen_meta(
    capture: Capture, event: Found, meta: Found, inodes: Callable[[], Inodes]
) -> dict[str, Any]:
    """Return ``frozen`` of meta.json.

    Args:
        capture: The window that was frozen.
        event: Message of the recorder: ``why``, ``rule``, and what broke the rule.
        meta: The rest of meta.json: start_ns, duration_ns.
        inodes: Returns the names of files by inode.
    """
    shift = capture.start_real_ns - capture.start_mono_ns

    def going_on(found: Found, since: str, kept: tuple[str, ...]) -> dict[str, Any]:
        return _going_on(capture, found, since, meta, inodes, kept)

    call, lock, flight, commits = (event.get(w) for w in ("call", "lock", "in_flight", "commits"))
    return {
        "why": event["why"],
        "rule": event.get("rule"),
        "at_ns": meta["start_ns"] + meta["duration_ns"],
        "window_ns": meta["duration_ns"],
        "call": call and {"tid": int(call["tid"]), "ts_ns": int(call["start_ns"]) + shift},
        "in_flight": flight and going_on(flight, "start_ns", _IN_FLIGHT),
        "lock": lock and going_on(lock, "since_ns", _LOCK),
        "commits": commits
        and {"n": commits["n"], "ts_ns": commits["end_ns"] + shift - commits["window_ns"]}
        | {"dur_ns": commits["window_ns"]},
    }


_IN_FLIGHT = ("pid", "tid", "comm", "syscall", "in_directory", "frames")
_LOCK = ("pid", "comm", "kind", "exclusive", "waiters")


def _known(path_id: int) -> int | None:
    return path_id if path_id >= 0 else None
