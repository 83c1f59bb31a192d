"""Calls left out on purpose, and parts of a recording."""

import json
from pathlib import Path

import pytest

from spoolscope.replay.outcomes import call_name, read_plan
from spoolscope.replay.plan import build
from spoolscope.replay.planned import plan
from spoolscope.replay.run import replay
from spoolscope.replay.scaled import Scale
from spoolscope.replay.whatif import HARMLESS, WHOLE, parse
from spoolscope.traces.calls import CALLS
from spoolscope.traces.errors import SpoolscopeError
from spoolscope.traces.slices import parse_slice
from spoolscope.traces.trace import Trace


def left(script, tmp_path: Path, skip: list[str], every: int = 1) -> tuple[list[str], dict]:
    trace = Trace.open(script.write(tmp_path / "trace"))
    summary, _ = plan(trace, tmp_path / "plan", parse(skip, every))
    made = read_plan(tmp_path / "plan").ops
    names = [call_name(op) for op in made]
    assert names.count("left out") == sum(summary.left_out.values())
    return [name for name in names if name != "left out"], summary.left_out


def durable(script) -> None:
    for i in range(7):
        script.call(10, 10 * i + 1, "fsync", "x", fd=3)
        script.call(10, 10 * i + 3, "write", "x", fd=3, size=5, ret=5)
        script.call(10, 10 * i + 5, "fdatasync", "x", fd=3)
    for i in range(2):
        script.call(20, 10 * i + 2, "fsync", "y", fd=4)
    script.call(20, 99, "sync")


@pytest.mark.parametrize(
    ("skip", "label", "options"),
    [
        (["sync"], "without all sync calls", ["--skip", "sync"]),
        (
            ["fdatasync", "fsync"],
            "without fdatasync and without fsync",
            ["--skip", "fdatasync", "--skip", "fsync"],
        ),
    ],
)
def test_a_whole_class_is_named_as_one(skip: list[str], label: str, options: list[str]) -> None:
    asked = parse(skip, 1)
    entry = asked.entry({})
    assert entry is not None
    assert entry["label"] == label
    assert asked.options() == options
    assert parse(options[1::2], 1) == asked


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
    # The first thread has 14, of which the 3rd, 6th, 9th and 12th are made; the second has 2.
    assert [name for name in made if "sync" in name] == [
        *("fsync", "fdatasync", "fsync", "fdatasync"),
        "sync",
    ]
    assert sum(gone.values()) == 16 - 4


def test_nothing_is_left_out_unless_asked(script, tmp_path: Path) -> None:
    durable(script)
    made, gone = left(script, tmp_path, [])
    assert (len(made), gone, WHOLE.entry({})) == (24, {}, None)


@pytest.mark.parametrize(
    ("part", "only", "users", "gone"),
    [
        ("20ms..40ms", [], 1, {"fsync": 2, "fdatasync": 2}),
        (None, ["20"], 1, {"fsync": 2}),
        (None, ["10"], 3, {"fsync": 21, "fdatasync": 21}),
        ("10ms..", ["20"], 2, {"fsync": 2}),
    ],
)
def test_a_part_says_what_was_left_out_of_it(script, tmp_path: Path, part, only, users, gone):
    durable(script)
    trace = Trace.open(script.write(tmp_path / "trace"))
    asked = parse(["fsync", "fdatasync"], 1, part, only, Scale(users, 0))
    summary, told = plan(trace, tmp_path / "plan", asked)
    assert summary.left_out == gone == told["left_out"]
    n = gone.get("fsync")
    assert f" {n} fsync" in told["sentence"]


def test_what_was_left_out_is_said_aloud() -> None:
    told = parse(["fsync"], 1).entry({"fsync": 12345})
    assert told is not None
    assert told["sentence"] == "WHAT IF: 12,345 fsync left out; this is not what the trace did."
    assert told["label"] == "without fsync"


@pytest.mark.parametrize("word", ["write", "rename", "close", "lseek", "flock", "dir", "nonsense"])
def test_calls_that_others_depend_on_stay(word: str) -> None:
    with pytest.raises(SpoolscopeError, match="cannot be left out"):
        parse([word], 1)


def test_what_may_be_left_out_is_in_the_table() -> None:
    assert set(CALLS) >= HARMLESS


@pytest.mark.parametrize(
    ("text", "from_ms", "to_ms"),
    [
        ("10..20", 10_000, 20_000),
        ("10s..1m", 10_000, 60_000),
        ("1.5m..", 90_000, None),
        ("..500ms", 0, 500),
        ("..", 0, None),
        ("1h..2h", 3_600_000, 7_200_000),
    ],
)
def test_parts_of_a_recording(text: str, from_ms: int, to_ms: int | None) -> None:
    part = parse_slice(text)
    assert part.from_ns == from_ms * 10**6
    assert part.to_ns == (None if to_ms is None else to_ms * 10**6)


@pytest.mark.parametrize(
    "text", ["", "5", "5..5", "9..3", "-1..2", "1s-2s", "a..b", "1d..2d", "..9999999h", "9999h.."]
)
def test_what_is_no_part(text: str) -> None:
    with pytest.raises(SpoolscopeError, match="no part of a recording"):
        parse_slice(text)


def test_the_time_of_a_call_that_is_left_out_is_no_pause(script, tmp_path: Path) -> None:
    for i in range(4):
        script.call(10, 500 * i + 1, "write", "x", fd=3, size=5, ret=5)
        script.call(10, 500 * i + 3, "fsync", "x", fd=3, dur_ms=480)
    script.call(10, 1990, "close", "x", fd=3)
    (tmp_path / "target").mkdir()
    places = [f"dir:{tmp_path / 'target'}"]
    trace, what_if = script.write(tmp_path / "trace"), parse(["fsync"], 1)
    (row,) = replay(trace, places, tmp_path / "out", pace="think", what_if=what_if)
    # Four fsync took 1,920 of 1,990 ms; the rest are pauses.
    assert 50e6 < row["makespan_ns"] < 1500e6


def test_a_part_begins_in_the_state_that_was_then(script, tmp_path: Path) -> None:
    script.entry("tmp/1", ino=7, size=3)
    script.call(10, 1, "rename", "tmp/1", path2="new/1", ino=7)
    script.call(10, 3, "stat", "new/1", ino=7)
    trace = Trace.open(script.write(tmp_path / "trace"))
    summary, told = plan(trace, tmp_path / "plan", parse([], 1, "2ms.."))
    assert (summary.syscalls, summary.ops, summary.tree_bytes) == (1, 1, 3)
    assert told is not None
    assert told["slice"]["before"] == 1
    assert told["label"] == "from 0.002 s to the end"
    assert "only what took effect from 0.002 s to the end" in told["sentence"]
    assert list(tmp_path.glob("plan*")) == [tmp_path / "plan"]


def test_a_part_is_made_beside_what_a_killed_command_has_left(script, tmp_path: Path) -> None:
    for at_ms in (1, 3, 5):
        script.call(10, at_ms, "stat", "x", ret=-2)
    trace = Trace.open(script.write(tmp_path / "trace"))
    (tmp_path / "plan.new").write_bytes(b"half of a plan")
    summary, _ = plan(trace, tmp_path / "plan", parse([], 1, "2ms.."))
    assert summary.syscalls == 2
    assert list(tmp_path.glob("plan*")) == [tmp_path / "plan"]


def test_a_part_counts_from_the_begin_of_the_trace(script, tmp_path: Path) -> None:
    """The plan's clock begins with the snapshot, 2 ms later."""
    for at_ms in (1, 3, 5, 7):
        script.call(10, at_ms, "stat", "x", ret=-2)
    path = script.write(tmp_path / "trace")
    meta = json.loads((path / "meta.json").read_text())
    meta["snapshot_ns"] = meta["start_ns"] + 2 * 10**6
    (path / "meta.json").write_text(json.dumps(meta))
    summary, _ = plan(Trace.open(path), tmp_path / "plan", parse([], 1, "4ms..6ms"))
    assert (summary.syscalls, summary.duration_ns) == (1, 2 * 10**6)
    whole = build(Trace.open(path), tmp_path / "plan")
    assert (whole.syscalls, whole.before_start) == (3, 1)  # the snapshot shows the first's effect


def test_a_part_without_calls_is_not_replayed(script, tmp_path: Path) -> None:
    script.call(10, 1, "stat", "x", ret=-2)
    script.call(10, 90, "stat", "x", ret=-2)
    (tmp_path / "target").mkdir()
    part = parse([], 1, "10ms..20ms")
    trace, places = script.write(tmp_path / "trace"), [f"dir:{tmp_path / 'target'}"]
    with pytest.raises(SpoolscopeError, match="no recorded call is in the part"):
        replay(trace, places, tmp_path / "out", what_if=part)
