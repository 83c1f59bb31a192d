"""Code that made calls: the tables user_calls and user_stacks."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from spoolscope.tracers.call_index import CallIndex
from spoolscope.traces.capture import Capture
from spoolscope.traces.comms import Comms
from spoolscope.traces.programs import program

Columns = dict[str, Any]


def counts_of_user_stacks(capture: Capture) -> dict[str, int] | None:
    """Return ``user_stacks`` of meta.json; None if user stacks were not recorded."""
    facts = capture.meta.get("user_stacks")
    if not facts:
        return None
    known = len(capture.records["user_call"])
    return {"stacks": len(facts["stacks"]), "calls": known, "unknown": int(facts["unknown"])}


def user_call_columns(capture: Capture, index: CallIndex) -> Columns:
    """Return one row per recorded call whose caller's stack is known."""
    rows = capture.records["user_call"]
    seq = index.seq(rows["tid"], rows["call_ns"])
    n_stacks = len((capture.meta.get("user_stacks") or {}).get("stacks", ()))
    known = (seq >= 0) & (rows["user_stack"] < n_stacks)
    rows, seq = rows[known], seq[known]
    order = np.argsort(rows["call_ns"], kind="stable")
    rows, seq = rows[order], seq[order]
    return {
        "ts_ns": rows["call_ns"].astype(np.int64) + (capture.start_real_ns - capture.start_mono_ns),
        "pid": rows["pid"].astype(np.int32),
        "tid": rows["tid"].astype(np.int32),
        "seq": seq,
        "user_stack_id": rows["user_stack"].astype(np.int64),
    }


def user_stack_columns(capture: Capture, comms: Comms) -> Columns:
    """Return one row per frame, innermost first."""
    facts: Mapping[str, Any] = capture.meta.get("user_stacks") or {"stacks": [], "files": []}
    frames = [
        (number, depth, *frame)
        for number, stack in enumerate(facts["stacks"])
        for depth, frame in enumerate(stack)
    ]
    files = [program(str(file["path"]).encode(), comms) for file in facts["files"]]
    ids = [_hidden(file["build_id"], comms) for file in facts["files"]]
    return {
        "user_stack_id": np.array([frame[0] for frame in frames], np.int64),
        "depth": np.array([frame[1] for frame in frames], np.int16),
        "function": [_hidden(frame[4], comms) for frame in frames],
        "file": np.array([files[frame[2]] for frame in frames], object),
        "offset": np.array([frame[3] for frame in frames], np.int64),
        "build_id": [ids[frame[2]] for frame in frames],
    }


def _hidden(name: str | None, comms: Comms) -> str | None:
    """Return text that names a program in the form in which the program's name is shown."""
    return None if name is None else comms.text(name.encode())
