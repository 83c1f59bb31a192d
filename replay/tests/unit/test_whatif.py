"""Calls left out on purpose."""

from pathlib import Path

import pytest

from spoolscope.replay.outcomes import call_name, read_plan
from spoolscope.replay.plan import build
from spoolscope.replay.whatif import HARMLESS, WHOLE, parse
from spoolscope.traces.calls import CALLS
from spoolscope.traces.errors import SpoolscopeError
from spoolscope.traces.trace import Trace


def left(script, tmp_path: Path, skip: list[str], every: int = 1) -> tuple[list[str], dict]:
    summary = build(
        Trace.open(script.write(tmp_path / "trace")), tmp_path / "plan", parse(skip, every)
    )
    plan = read_plan(tmp_path / "plan")
    return [call_name(op) for op in plan.ops], summary.left_out


def durable(script) -> None:
    for i in range(7):
        script.call(10, 10 * i + 1, "fsync", "x", fd=3)
        script.call(10, 10 * i + 3, "write", "x", fd=3, size=5, ret=5)
        script.call(10, 10 * i + 5, "fdatasync", "x", fd=3)
    for i in range(2):
        script.call(20, 10 * i + 2, "fsync", "y", fd=4)
    script.call(20, 99, "sync")


def test_calls_are_left_out_by_name_and_by_class(script, tmp_path: Path) -> None:
    durable(script)
    made, gone = left(script, tmp_path, ["fsync"])
    assert made == ["write", "fdatasync"] * 7 + ["sync"]
    assert gone == {"fsync": 9}


def test_a_class_of_calls(script, tmp_path: Path) -> None:
    durable(script)
    made, gone = left(script, tmp_path, ["sync"])
    assert made == ["write"] * 7
    assert gone == {"fsync": 9, "fdatasync": 7, "sync": 1}


def test_every_third_fsync_of_each_thread_is_made(script, tmp_path: Path) -> None:
    durable(script)
    made, gone = left(script, tmp_path, [], every=3)
    # 14 of the first thread, of which the 3rd, 6th, 9th and 12th are made; 2 of the second.
    assert [name for name in made if "sync" in name] == [
        *("fsync", "fdatasync", "fsync", "fdatasync"),
        "sync",
    ]
    assert sum(gone.values()) == 16 - 4


def test_nothing_is_left_out_unless_asked(script, tmp_path: Path) -> None:
    durable(script)
    made, gone = left(script, tmp_path, [])
    assert (len(made), gone, WHOLE.told({})) == (24, {}, None)


def test_what_was_left_out_is_said_aloud() -> None:
    told = parse(["fsync"], 1).told({"fsync": 12345})
    assert told is not None
    assert told["sentence"] == "WHAT IF: 12,345 fsync left out; this is not what the trace did."
    assert told["label"] == "without fsync"


@pytest.mark.parametrize("word", ["write", "rename", "close", "lseek", "flock", "dir", "nonsense"])
def test_calls_that_others_depend_on_stay(word: str) -> None:
    with pytest.raises(SpoolscopeError, match="cannot be left out"):
        parse([word], 1)


def test_what_may_be_left_out_is_in_the_table() -> None:
    assert set(CALLS) >= HARMLESS
