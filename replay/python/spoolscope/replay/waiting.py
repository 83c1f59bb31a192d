"""Reasons why a call waits for others: the engine's own edges, in the words of the trace."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from spoolscope.replay.engine import Engine
from spoolscope.replay.outcomes import Plan, call_name
from spoolscope.traces.errors import usage_error
from spoolscope.traces.flat import NO_CALL_ROW, NONE
from spoolscope.traces.trace import Trace

LISTED = 10
_COLUMNS = ["ts_ns", "pid", "tid", "seq", "comm", "syscall"]
# The need of a call for a name, and below it the effect of an earlier call on that name.
_NEEDS = {
    "present": "needs the name '{what}' to exist",
    "absent": "needs the name '{what}' to be free",
    "empty": "needs the directory '{what}' to be empty",
    "full": "found something in '{what}'",
    "looks": "looks at the name '{what}'",
    "changes": "changes the name '{what}'",
    "removes": "takes the name '{what}' away",
    "above": "needs the directory '{what}' where it is",
    "through": "is led on by the symlink '{what}'",
}
_DID = {
    "used": "went through it",
    "met": "met it before that",
    "found": "found it before that",
    "moved away": "moved what was there away",
    "removed": "removed what was there",
    "made": "made it",
    "moved here": "moved a file there",
    "linked": "linked a file there",
    "swapped": "swapped it",
}


@dataclass(frozen=True)
class Calls:
    """Recorded calls by thread and number.

    Attributes:
        trace: The trace.
        rows: Its calls: time, thread, number, names of thread and call.
    """

    trace: Trace
    rows: dict[str, Any]

    @classmethod
    def of(cls, trace: Trace) -> "Calls":
        """Read the columns that identify the calls of a trace."""
        table = trace.table("syscalls", _COLUMNS)
        return cls(trace, {name: table[name].combine_chunks() for name in _COLUMNS})

    def find(self, text: str) -> list[int]:
        """Return the rows of ``TID:SEQ``, or of ``SEQ`` where only one thread has that number.

        Several rows are found if a later thread with the same id has this number, too.

        Raises:
            SpoolscopeError: no such call, or the calls of several threads.
        """
        match = re.fullmatch(r"(?:(\d+):)?(\d+)", text)
        if match is None:
            raise usage_error(f"'{text}' is no call", "give THREAD:NUMBER, e.g. 2144:57")
        tids = self.rows["tid"].to_numpy()
        found = self.rows["seq"].to_numpy() == int(match[2])
        if match[1]:
            found &= tids == int(match[1])
        rows: list[int] = np.flatnonzero(found).tolist()
        if not rows:
            raise usage_error(
                f"trace {self.trace.path} has no call {text}",
                "list calls with DuckDB: SELECT tid, seq, syscall FROM 'syscalls.parquet'",
            )
        if len({tids[row] for row in rows}) > 1:
            shown = ", ".join(
                f"{tids[row]}:{match[2]} ({self._name(row)})" for row in rows[:LISTED]
            )
            more = f" and {len(rows) - LISTED} more" if len(rows) > LISTED else ""
            raise usage_error(
                f"{len(rows)} threads have a call {text}", f"give one of {shown}{more}"
            )
        return rows

    def _name(self, row: int) -> str:
        return f"{self.rows['comm'][row].as_py()}, {self.rows['syscall'][row].as_py()}"

    def describe(self, plan: Plan, at: int) -> dict[str, Any]:
        """Return an operation of the plan in the form of JSON; time in ns since the trace began."""
        op, row = plan.ops[at], int(plan.ops[at]["call"])
        path, path2 = (
            None if op[name] == NONE else plan.strings[int(op[name])] for name in ("path", "path2")
        )
        answer = {"op": at, "syscall": call_name(op), "path": path, "path2": path2}
        answer["ret"] = int(op["ret"])
        if row == NO_CALL_ROW:
            return answer | {"recorded": False}
        known = {name: self.rows[name][row].as_py() for name in ("pid", "tid", "seq", "comm")}
        at_ns = self.rows["ts_ns"][row].as_py() - int(self.trace.meta["start_ns"])
        return answer | {"recorded": True, "at_ns": at_ns, **known}


def explain(
    trace: Trace, plan: Plan, engine: Engine, order: str, call: str
) -> list[dict[str, Any]]:
    """Return for a recorded call which calls it waits for and why, and which wait for it.

    ``waits`` are the engine's edges. Calls in ``covered`` come first, too, but the thread has
    already waited for them, or for a later call of their thread.

    Args:
        trace: The trace.
        plan: Its plan.
        engine: The replayer, for that plan.
        order: One of ``engine.ORDERS``.
        call: ``TID:SEQ``, or ``SEQ`` if only one thread has that number.

    Raises:
        SpoolscopeError: there is no such call, or it is not replayed.
    """
    calls = Calls.of(trace)
    rows = calls.find(call)
    asked = np.flatnonzero(np.isin(plan.ops["call"], np.array(rows, np.uint64)))
    if not len(asked):
        raise usage_error(
            f"call {call} is not replayed", remedy="see what 'spoolscope plan' leaves out, and why"
        )
    answer = engine.explain(order, asked.tolist())["explained"]
    return [_in_words(calls, plan, one) for one in answer]


def _in_words(calls: Calls, plan: Plan, answer: dict[str, Any]) -> dict[str, Any]:
    def listed(edges: Iterable[dict[str, Any]], other: str) -> list[dict[str, Any]]:
        found = [
            {"call": calls.describe(plan, edge[other]), **edge, "reason": reason(plan, edge)}
            for edge in edges
        ]
        return sorted(found, key=lambda edge: edge["call"].get("at_ns", 0))

    previous = answer["previous"]
    return {
        "call": calls.describe(plan, answer["op"]),
        "previous": None if previous is None else calls.describe(plan, previous),
        "waits": listed(answer["waits"], "before"),
        "covered": listed(answer["covered"], "before"),
        "waited_by": listed(answer["waited_by"], "op"),
        "may_sleep": answer["may_sleep"],
        "unexplained": answer["unexplained"],
    }


def reason(plan: Plan, edge: dict[str, Any]) -> str:
    """Return why the later of two calls must come after the earlier one, in words."""
    what, need, did = edge["what"], edge["need"], edge["did"]
    path = plan.ops["path"][edge["op"]]
    inode = "unknown inode" if what is None else f"inode {what}"
    file = inode if path == NONE else f"'{plan.strings[int(path)]}' ({inode})"
    match edge["kind"]:
        case "name":
            return f"{_NEEDS[need].format(what=what)}; the earlier one {_DID[did]}"
        case "data":
            return f"{need} the size of {file}; the earlier one {did} it"
        case "exit":
            return "ends the process; the earlier one ended another of its threads"
        case "lease":
            return f"{need} {file}; the earlier one {did} it"
        case "lock":
            return f"{need} the lock of {file}; the earlier one {did}"
        case "descriptor":
            return f"{need} descriptor {what}; the earlier one {did} it"
        case "descriptors":
            return f"{need} the descriptors of its process; the earlier one {did} them"
        case "working directory":
            return f"{need} the working directory; the earlier one {did} it"
        case "umask":
            return f"{need} the umask; the earlier one {did} it"
        case "names in a directory":
            listed = f"'{what}'" if what else "the spool"
            return f"{need} {listed}; the earlier one {did} it"
        case "attribute":
            return f"{need} attribute '{what}' of {file}; the earlier one {did} it"
        case "names of attributes":
            return f"{need} the extended attributes of {file}; the earlier one {did} them"
        case "mode, owner or times":
            of = "its file" if what is None else f"'{what}'" if what else "the spool"
            return f"{need} mode, owner or times of {of}; the earlier one {did} them"
        case "position":
            return f"moves the position that descriptor {what} shares; so does the earlier one"
        case "copies of a descriptor":
            return "closes the last copy of a descriptor with locks; the earlier one closed another"
        case "moment":
            return "began when the earlier one had ended"
    raise ValueError(f"no words for an edge of kind {edge['kind']!r}")
