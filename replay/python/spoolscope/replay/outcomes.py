"""Outcomes of a run: Parquet, divergences by first cause."""

import errno
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from spoolscope.replay.held import FAULT
from spoolscope.replay.plan import EXEC, EXIT, FORK, Ops
from spoolscope.traces.calls import BY_ID
from spoolscope.traces.flat import DTYPES, NO_CALL_ROW, NONE

VERDICTS = ("pending", "same", "diverged", "skipped")
REASONS = (
    "none",
    "errno",
    "bytes",
    "value",
    "bad_fd",
    "not_a_file",
    "unsupported",
    "no_order",
)
PENDING, SAME, DIVERGED, SKIPPED = range(4)
BAD_FD = 4
LISTED = 200
_PSEUDO = {FORK: "fork", EXEC: "exec", EXIT: "exit", FAULT: "fault"}


@dataclass(frozen=True)
class Plan:
    """The sections of a plan file that judging a run needs."""

    ops: Ops
    strings: list[str]


def read_plan(path: Path) -> Plan:
    """Map the operations of a plan and read its strings."""
    raw = np.memmap(path, np.uint8, "r")
    header = raw[: DTYPES["plan_header"].itemsize].view(DTYPES["plan_header"])[0]
    ops = _section(raw, header, "ops_at", DTYPES["plan_op"], int(header["n_ops"]))
    index = _section(
        raw, header, "string_index_at", np.dtype(np.uint64), int(header["n_strings"]) + 1
    )
    at = int(header["string_bytes_at"])
    text = raw[at : at + int(header["string_bytes"])].tobytes()
    ends = index.tolist()
    strings = [text[a:b].decode(errors="replace") for a, b in pairwise(ends)]
    return Plan(ops, strings)


def _section(
    raw: npt.NDArray[np.uint8], header: np.void, at: str, dtype: "np.dtype[Any]", count: int
) -> npt.NDArray[Any]:
    start = int(header[at])
    return raw[start : start + count * dtype.itemsize].view(dtype)


def read_outcomes(path: Path) -> npt.NDArray[np.void]:
    """Read what spoolscope-replay wrote: one record per operation of the plan."""
    return np.fromfile(path, DTYPES["outcome"])


def write_parquet(plan: Plan, outcomes: npt.NDArray[np.void], path: Path) -> None:
    """Write outcomes.parquet: one row per operation, joined to the trace by ``call``."""
    call = plan.ops["call"]
    failed = outcomes["ret"] < 0
    columns = {
        "op": pa.array(np.arange(len(outcomes), dtype=np.int64)),
        "call": pa.array(call.astype(np.int64), mask=call == NO_CALL_ROW),
        "issue_ns": pa.array(outcomes["issue_ns"]),
        "ready_ns": pa.array(outcomes["ready_ns"]),
        "end_ns": pa.array(outcomes["end_ns"]),
        "ret": pa.array(np.where(failed, -1, outcomes["ret"])),
        "errno": pa.array(np.where(failed, -outcomes["ret"], 0).astype(np.int32)),
        "verdict": _words(outcomes["verdict"], VERDICTS),
        "reason": _words(outcomes["reason"], REASONS),
        "tid": pa.array(outcomes["tid"].astype(np.int32)),
    }
    # Numbers that grow with time are stored as differences: 8 bytes a row instead of 19.
    growing = ("op", "call", "issue_ns", "ready_ns", "end_ns")
    pq.write_table(
        pa.table(columns),
        path,
        compression="zstd",
        compression_level=3,
        use_dictionary=[name for name in columns if name not in growing],
        column_encoding=dict.fromkeys(growing, "DELTA_BINARY_PACKED"),
    )


def _words(codes: npt.NDArray[np.uint8], words: tuple[str, ...]) -> pa.Array:
    return pa.DictionaryArray.from_arrays(pa.array(codes.astype(np.int32)), pa.array(words))


def divergences(plan: Plan, outcomes: npt.NDArray[np.void]) -> dict[str, Any]:
    """Group everything that was not the same by its first cause.

    A divergence on an object or name that diverged before is a consequence of that one.
    Returns ``{"groups": [{cause, n, calls, first}], "skipped": {what: n}, "listed": [...]}``.
    """
    wrong = np.flatnonzero(outcomes["verdict"] == DIVERGED)
    wrong = wrong[np.argsort(outcomes["issue_ns"][wrong], kind="stable")]
    first_of: dict[tuple[str, int], int] = {}
    groups: dict[int, dict[str, Any]] = {}
    for at in wrong.tolist():
        op = plan.ops[at]
        keys = list(_keys(op))
        first = next((first_of[key] for key in keys if key in first_of), at)
        for key in keys:
            first_of.setdefault(key, first)
        group = groups.setdefault(first, {"cause": _cause(op, outcomes[at]), "n": 0, "calls": {}})
        group["n"] += 1
        group["calls"][call_name(op)] = group["calls"].get(call_name(op), 0) + 1
        group.setdefault("first", describe(plan, outcomes, at))
    ranked = sorted(groups.values(), key=lambda group: -int(group["n"]))
    return {
        "groups": ranked[:LISTED],
        "skipped": _skipped(plan, outcomes),
        "listed": [describe(plan, outcomes, at) for at in wrong[:LISTED].tolist()],
    }


def _keys(op: np.void) -> Iterable[tuple[str, int]]:
    if op["ino"]:
        yield "ino", int(op["ino"])
    for name in ("path", "path2"):
        if op[name] != NONE:
            yield "path", int(op[name])


def call_name(op: np.void) -> str:
    """Return the name of an operation's call."""
    number = int(op["op"])
    return _PSEUDO.get(number) or (BY_ID[number].name if number in BY_ID else f"call {number}")


def _result(ret: int) -> str:
    return errno.errorcode.get(-ret, str(-ret)) if ret < 0 else "success"


def _cause(op: np.void, outcome: np.void) -> str:
    name, reason = call_name(op), REASONS[int(outcome["reason"])]
    if reason == "errno":
        return f"{name}: {_result(int(outcome['ret']))} instead of {_result(int(op['ret']))}"
    return f"{name}: {reason.replace('_', ' ')}"


def describe(plan: Plan, outcomes: npt.NDArray[np.void], at: int) -> dict[str, Any]:
    """Return one operation and its result as JSON knows it."""
    op, outcome = plan.ops[at], outcomes[at]
    call = int(op["call"])
    path = plan.strings[int(op["path"])] if op["path"] != NONE else None
    return {
        "op": at,
        "call": None if call == NO_CALL_ROW else call,
        "syscall": call_name(op),
        "path": path,
        "recorded": int(op["ret"]),
        "replayed": int(outcome["ret"]),
        "reason": REASONS[int(outcome["reason"])],
    }


def _skipped(plan: Plan, outcomes: npt.NDArray[np.void]) -> dict[str, int]:
    counts: dict[str, int] = {}
    left = np.flatnonzero((outcomes["verdict"] == SKIPPED) | (outcomes["verdict"] == PENDING))
    for at in left.tolist():
        pending = outcomes["verdict"][at] == PENDING
        why = "never reached" if pending else REASONS[int(outcomes["reason"][at])]
        what = f"{call_name(plan.ops[at])}: {why.replace('_', ' ')}"
        counts[what] = counts.get(what, 0) + 1
    return dict(sorted(counts.items(), key=lambda item: -item[1]))
