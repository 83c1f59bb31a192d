"""Divergences by first cause; those that the filesystem explains are set apart."""

import errno
import os
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow.parquet as pq

from spoolscope.replay.differences import Answer, Difference, Types, difference_of
from spoolscope.replay.engine import Engine
from spoolscope.replay.outcomes import (
    BAD_FD,
    DIVERGED,
    OF_FILESYSTEM,
    PENDING,
    REASONS,
    SKIPPED,
    Plan,
    call_name,
    judged,
)
from spoolscope.traces.flat import NO_CALL_ROW, NONE
from spoolscope.traces.pathclass import path_class
from spoolscope.traces.trace import Trace

LISTED = 200
SHOWN = 20


@dataclass(frozen=True)
class Divergence:
    """A call with another result.

    Attributes:
        at: The operation; root: the first divergence it follows from, or itself.
        difference: Its own class of difference; None if its filesystem does not explain it.
    """

    at: int
    root: int
    difference: Difference | None


@dataclass(frozen=True)
class Ties:
    """Ties of a divergence to other operations, by the order of the plan.

    Attributes:
        earlier: Divergences that it may follow from: they made, or should have made, what its
            result depends on.
        opened: The operation that opened its descriptor; None if none in the plan did.
    """

    earlier: tuple[int, ...]
    opened: int | None


def ties_of(engine: Engine, outcomes: npt.NDArray[np.void], outcomes_file: Path) -> dict[int, Ties]:
    """Return the ties of each divergence in some outcomes, by operation.

    Args:
        engine: The replayer of the plan, which finds them.
        outcomes: Outcomes of a run.
        outcomes_file: The file that holds them.
    """
    if not len(judged(outcomes, DIVERGED)):
        return {}
    found = engine.follow(outcomes_file)["divergences"]
    return {one["op"]: Ties(tuple(one["earlier"]), one["opened"]) for one in found}


def judge(
    plan: Plan, outcomes: npt.NDArray[np.void], types: Types, ties: Mapping[int, Ties]
) -> list[Divergence]:
    """Find the first cause of every divergence, in the order in which the calls were made.

    A divergence follows from the first of those that it is tied to. If the filesystem explains it
    or its first cause, its verdict in ``outcomes`` becomes ``OF_FILESYSTEM``.
    """
    wrong = judged(outcomes, DIVERGED)
    wrong = wrong[np.argsort(outcomes["issue_ns"][wrong], kind="stable")]
    first_of: dict[int, int] = {}  # by operation, index of its first cause in ``found``
    found: list[Divergence] = []
    for here, at in enumerate(wrong.tolist()):
        answer = _answer(plan, at, int(outcomes["ret"][at]), ties[at].opened)
        difference = difference_of(answer, types)
        earlier = (first_of[other] for other in ties[at].earlier if other in first_of)
        first = here if difference else min(earlier, default=here)
        found.append(Divergence(at, at if first == here else found[first].at, difference))
        if difference or found[first].difference:
            outcomes["verdict"][at] = OF_FILESYSTEM
        # Refusals with different errors leave the same state.
        if not (difference and answer.recorded and answer.replayed):
            first_of[at] = first
    return found


def _answer(plan: Plan, at: int, ret: int, opened: int | None) -> Answer:
    """Return both results of an operation; ``ret`` is the replay's."""
    op = plan.ops[at]
    second = plan.strings[int(op["path2"])] if op["path2"] != NONE else ""
    direct = opened is not None and int(plan.ops[opened]["flags"]) & os.O_DIRECT > 0
    recorded, replayed = max(-int(op["ret"]), 0), max(-ret, 0)
    return Answer(op, recorded, replayed, len(second.encode()), direct)


def causes(
    plan: Plan,
    outcomes: npt.NDArray[np.void],
    found: list[Divergence],
    types: Types,
    trace: Trace,
) -> dict[str, Any]:
    """Return divergences by kind of first cause, in the form of JSON, the most frequent first.

    A kind is (syscall, recorded and replayed result, class of path, type of filesystem, class of
    difference); ``n`` first causes are of this kind, ``followed`` divergences follow from these,
    and ``example`` is the first; ``thread_seq`` is its thread and number there.
    """
    kinds: dict[tuple[str, ...], dict[str, Any]] = {}
    for one in found:
        kind = _kind(plan, outcomes, one.root)
        if one.at == one.root:
            kinds.setdefault(kind, _new_kind(plan, outcomes, one, kind, types))["n"] += 1
        else:
            kinds[kind]["followed"] += 1
    ranked = sorted(kinds.values(), key=lambda kind: -int(kind["n"] + kind["followed"]))
    _number(trace, [kind["example"] for kind in ranked[:LISTED]])
    return {
        "roots": ranked[:LISTED],
        "kinds": len(ranked),
        "first_causes": sum(one.at == one.root for one in found),
        "followed": sum(one.at != one.root for one in found),
        "of_filesystem": dict(Counter(one.difference.name for one in found if one.difference)),
        "skipped": _skipped(plan, outcomes),
        "listed": [describe(plan, outcomes, one.at) for one in found[:LISTED]],
    }


def shown(caused: dict[str, Any]) -> dict[str, Any]:
    """Return the part of ``causes`` that a run's row carries."""
    kept = ("kinds", "first_causes", "followed", "of_filesystem")
    return {"roots": caused["roots"][:SHOWN], **{key: caused[key] for key in kept}}


def sentence(root: dict[str, Any]) -> str:
    """Return a line on a first cause: its kind, its number, what followed, and an example."""
    example = root["example"]
    said = f"{root['cause']} ({root['path_class']}, {root['filesystem']}): {root['n']:,}"
    said += f", {root['followed']:,} followed" if root["followed"] else ""
    said += f"; of the filesystem: {root['class']}" if root["class"] else ""
    return f"{said}; e.g. {example['thread_seq'] or '-'} {example['path'] or ''}".rstrip()


def _kind(plan: Plan, outcomes: npt.NDArray[np.void], at: int) -> tuple[str, ...]:
    op = plan.ops[at]
    path = plan.strings[int(op["path"])] if op["path"] != NONE else None
    return call_name(op), *_results(op, outcomes[at]), path_class(path)


def _new_kind(
    plan: Plan,
    outcomes: npt.NDArray[np.void],
    first: Divergence,
    kind: tuple[str, ...],
    types: Types,
) -> dict[str, Any]:
    syscall, recorded, replayed, path = kind
    return {
        "cause": f"{syscall}: {replayed} instead of {recorded}",
        "syscall": syscall,
        "recorded": recorded,
        "replayed": replayed,
        "path_class": path,
        "filesystem": types.candidate,
        "class": first.difference.name if first.difference else None,
        "source": first.difference.source if first.difference else None,
        "n": 0,
        "followed": 0,
        "example": describe(plan, outcomes, first.at),
    }


def _results(op: np.void, outcome: np.void) -> tuple[str, str]:
    """Return the recorded and the replayed result in words."""
    before, after = int(op["ret"]), int(outcome["ret"])
    if outcome["reason"] == BAD_FD:
        return _result(before), "no descriptor"
    if before < 0 or after < 0:
        return _result(before), _result(after)
    if REASONS[int(outcome["reason"])] == "bytes":
        return "all bytes", "fewer bytes" if after < before else "more bytes"
    if REASONS[int(outcome["reason"])] == "names":
        return "its names", "other names"
    return "its value", "another value"


def _result(ret: int) -> str:
    return errno.errorcode.get(-ret, str(-ret)) if ret < 0 else "success"


def describe(plan: Plan, outcomes: npt.NDArray[np.void], at: int) -> dict[str, Any]:
    """Return one operation and its result in the form of JSON."""
    op, outcome = plan.ops[at], outcomes[at]
    call = int(op["call"])
    path = plan.strings[int(op["path"])] if op["path"] != NONE else None
    return {
        "op": at,
        "call": None if call == NO_CALL_ROW else call,
        "thread_seq": None,
        "syscall": call_name(op),
        "path": path,
        "recorded": int(op["ret"]),
        "replayed": int(outcome["ret"]),
        "reason": REASONS[int(outcome["reason"])],
    }


def _number(trace: Trace, examples: list[dict[str, Any]]) -> None:
    """Give calls their ``thread_seq``; only the row groups that hold them are read."""
    # Operations of copied users have the same call.
    wanted: dict[int, list[dict[str, Any]]] = {}
    for example in examples:
        if example["call"] is not None:
            wanted.setdefault(example["call"], []).append(example)
    if not wanted:
        return
    file, first = pq.ParquetFile(trace.verified("syscalls")), 0
    for group in range(file.num_row_groups):
        n = file.metadata.row_group(group).num_rows
        here = [call for call in wanted if first <= call < first + n]
        if here:
            table = file.read_row_group(group, columns=["tid", "seq"])
            for call in here:
                tid, seq = (table[name][call - first].as_py() for name in ("tid", "seq"))
                for example in wanted[call]:
                    example["thread_seq"] = f"{tid}:{seq}"
        first += n


def _skipped(plan: Plan, outcomes: npt.NDArray[np.void]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for at in judged(outcomes, SKIPPED, PENDING).tolist():
        pending = outcomes["verdict"][at] == PENDING
        why = "never reached" if pending else REASONS[int(outcomes["reason"][at])]
        what = f"{call_name(plan.ops[at])}: {why.replace('_', ' ')}"
        counts[what] = counts.get(what, 0) + 1
    return dict(sorted(counts.items(), key=lambda item: -item[1]))
