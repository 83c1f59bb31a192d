"""The task that had the awaited CPU is in the rows of that wait, and in no others."""

from pathlib import Path

from spoolscope.tracers.convert import convert
from spoolscope.traces.trace import Trace

BLOCKED, PREEMPTED = 1, 2
HOG = {"held_pid": 4, "held_tid": 5, "held_comm": b"hog"}
COLUMNS = ("state", "dur_ns", "held_pid", "held_tid", "held_comm", "held_after_ns", "held_ns")


def rows(new_story, tmp_path: Path, monkeypatch, *switches) -> list[tuple]:
    story = new_story()
    story.capture.meta["spools"][0]["options"] = "rw"
    story.call(1, "stat", "/spool/x")
    for switch in switches:
        story.add("switch", **{"call_ns": story.now - 5, "pid": 1, "tid": 1, **switch})
    monkeypatch.setattr("spoolscope.tracers.convert.read_capture", lambda _: story.end())
    convert([tmp_path], tmp_path, None)
    table = Trace.open(tmp_path).table("segments").sort_by("ts_ns").to_pylist()
    return [tuple(row[name] for name in COLUMNS) for row in table]


def test_a_sleep_has_no_holder_and_the_wait_after_it_has(new_story, tmp_path, monkeypatch):
    asleep = {"state": BLOCKED, "out_ns": 100, "wake_ns": 200, "in_ns": 900}
    held = {"held_from_ns": 350, "held_ns": 400}
    assert rows(new_story, tmp_path, monkeypatch, asleep | held | HOG) == [
        ("blocked", 100, None, None, None, None, None),
        ("runq", 700, 4, 5, "hog", 150, 400),
    ]


def test_who_pushed_it_off_and_an_idle_cpu(new_story, tmp_path, monkeypatch):
    pushed = {"state": PREEMPTED, "out_ns": 100, "in_ns": 600, "held_from_ns": 100, "held_ns": 500}
    idle = {"state": BLOCKED, "out_ns": 1000, "wake_ns": 1100, "in_ns": 1101}
    assert rows(new_story, tmp_path, monkeypatch, pushed | HOG, idle) == [
        ("preempted", 500, 4, 5, "hog", 0, 500),
        ("blocked", 100, None, None, None, None, None),
        ("runq", 1, None, None, None, None, None),
    ]
