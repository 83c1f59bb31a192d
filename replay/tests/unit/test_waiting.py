"""Reasons why calls wait for others, in traces by hand."""

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from spoolscope.replay.engine import Engine
from spoolscope.replay.outcomes import read_plan
from spoolscope.replay.plan import build
from spoolscope.replay.waiting import explain, reason
from spoolscope.traces.errors import SpoolscopeError
from spoolscope.traces.flat import DTYPES, NONE
from spoolscope.traces.trace import Trace


def asked(script, tmp_path: Path, call: str, order: str = "resource") -> list[dict[str, Any]]:
    trace = Trace.open(script.write(tmp_path / "trace"))
    build(trace, tmp_path / "plan")
    return explain(trace, read_plan(tmp_path / "plan"), Engine(tmp_path / "plan"), order, call)


def delivery(script) -> None:
    """Thread 10 delivers a mail; thread 20 looks for it before and after that."""
    script.entry("tmp/1", ino=7)
    script.entry("new", ino=8, mode=0o040755)
    script.call(20, 1, "stat", "new/1", ret=-2)
    script.call(10, 2, "rename", "tmp/1", path2="new/1", ino=7)
    script.call(20, 3, "stat", "new/1", ino=7)


def test_a_call_waits_for_what_made_its_name(script, tmp_path: Path) -> None:
    delivery(script)
    (found,) = asked(script, tmp_path, "20:1")
    (edge,) = found["waits"]
    assert (edge["call"]["tid"], edge["call"]["seq"], edge["call"]["at_ns"]) == (10, 0, 2_000_000)
    assert edge["reason"] == "needs the name 'new/1' to exist; the earlier one moved a file there"
    assert found["previous"]["seq"] == 0
    assert found["call"]["path"] == "new/1"


def test_who_waits_is_told_with_whom_is_waited_for(script, tmp_path: Path) -> None:
    delivery(script)
    (found,) = asked(script, tmp_path, "10:0")
    (before,), (after,) = found["waits"], found["waited_by"]
    assert before["reason"] == "changes the name 'new/1'; the earlier one met it before that"
    assert (before["call"]["seq"], after["call"]["seq"]) == (0, 1)


def test_the_recorded_order_adds_moments(script, tmp_path: Path) -> None:
    script.call(10, 1, "stat", "a", ret=-2)
    script.call(20, 2, "stat", "b", ret=-2)
    trace = Trace.open(script.write(tmp_path / "trace"))
    build(trace, tmp_path / "plan")
    plan, engine = read_plan(tmp_path / "plan"), Engine(tmp_path / "plan")
    waits = {
        order: explain(trace, plan, engine, order, "20:0")[0]["waits"]
        for order in ("none", "resource", "recorded")
    }
    assert waits["none"] == waits["resource"] == []
    assert [edge["reason"] for edge in waits["recorded"]] == [
        "began when the earlier one had ended"
    ]


@pytest.mark.parametrize(
    ("call", "words"),
    [("x", "is no call"), ("10:9", "has no call 10:9"), ("0", "2 threads have a call 0")],
)
def test_a_call_that_is_not_clear(script, tmp_path: Path, call: str, words: str) -> None:
    script.call(10, 1, "stat", "a", ret=-2)
    script.call(20, 2, "stat", "a", ret=-2)
    with pytest.raises(SpoolscopeError, match=words):
        asked(script, tmp_path, call)


def test_a_number_that_one_thread_has_needs_no_thread(script, tmp_path: Path) -> None:
    delivery(script)
    (found,) = asked(script, tmp_path, "1")
    assert (found["call"]["tid"], found["call"]["seq"]) == (20, 1)


REASONS_RS = Path(__file__).resolve().parents[2] / "src" / "model" / "order" / "reasons.rs"


def kinds() -> list[str]:
    """Return the kinds of edges that the engine names."""
    body = REASONS_RS.read_text().partition("fn kind(")[2].partition("\n}\n")[0]
    return re.findall(r'=> "([^"]+)"', body)


def test_each_kind_of_edge_has_a_reason_of_its_own() -> None:
    ops = np.zeros(1, DTYPES["plan_op"])
    ops["path"] = NONE
    plan: Any = SimpleNamespace(ops=ops, strings=[])
    edge = {"op": 0, "what": 7, "need": "present", "did": "made"}
    said = {kind: reason(plan, {**edge, "kind": kind}) for kind in kinds()}
    assert len(said) >= 14
    assert len(set(said.values())) == len(said)
    assert said["moment"] == "began when the earlier one had ended"
    assert "copy" in said["copies of a descriptor"]
    with pytest.raises(ValueError, match="no words for an edge"):
        reason(plan, {**edge, "kind": "another"})


def test_the_last_copy_of_a_descriptor_with_a_lock_waits_for_the_others(script, tmp_path) -> None:
    """A child has a copy of its parent's locked descriptor: the lock ends with the last copy."""
    script.entry("box", ino=7)
    script.thread(10)
    script.call(10, 1, "openat", "box", ret=3, flags=2, ino=7, obj_mode=0o100644)
    script.call(10, 2, "flock", "box", base=0, fd=3, ino=7, cmd=2, ret=0)
    script.fork(10, 20, 3)
    script.call(20, 5, "close", "box", base=0, fd=3, ino=7)
    script.call(10, 9, "close", "box", base=0, fd=3, ino=7)
    (found,) = asked(script, tmp_path, "10:2")
    reasons = {edge["reason"] for edge in (*found["waits"], *found["covered"])}
    assert reasons == {
        "closes the last copy of a descriptor with locks; the earlier one closed another"
    }
