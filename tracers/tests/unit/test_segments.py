"""Segments read alone and joined: numbers go on over a border, and no record is repeated."""

import numpy as np
import pytest

from spoolscope.tracers.lives import BORDER, END, EXIT, FORK, continue_numbering
from spoolscope.tracers.losses import loss_columns
from spoolscope.tracers.resolve import resolve
from spoolscope.traces.capture import Capture
from spoolscope.traces.flat import STACK_FRAMES
from spoolscope.traces.join import join

SEEN, WATCHED = 1, 7


def losses(capture: Capture) -> list[tuple[int, int, int, int]]:
    columns = loss_columns(capture, continue_numbering(capture))
    rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    return [(r["tid"], r["first_seq"], r["last_seq"], r["n"]) for r in rows]


def later(story) -> None:
    story.capture.number = 2
    story.capture.start_mono_ns = story.capture.start_real_ns = 100
    story.capture.meta["borders"] = True
    story.now = 100


def test_numbers_go_on_after_a_border(new_story) -> None:
    story = new_story()
    later(story)
    story.add("task", ts_ns=90, event=BORDER, pid=7, tid=7, n_calls=40)
    story.seq[7] = 40
    story.call(7, "close", 3)
    story.call(7, "close", 4)
    story.task(END, 7, n_calls=42)
    capture = story.end()
    assert losses(capture) == []
    assert capture.records["syscall"]["seq"].tolist() == [40, 41]
    assert BORDER not in capture.records["task"]["event"]


def test_what_was_lost_around_a_border_is_located_in_the_later_segment(new_story) -> None:
    story = new_story()
    later(story)
    story.add("task", ts_ns=90, event=BORDER, pid=7, tid=7, n_calls=40)
    story.seq[7] = 45
    story.call(7, "close", 3)
    columns = loss_columns(story.end(), continue_numbering(story.capture))
    assert (columns["first_seq"][0], columns["last_seq"][0], columns["n"][0]) == (40, 44, 5)
    assert (columns["after_ns"][0], columns["before_ns"][0]) == (90, 105)


def test_a_tid_given_out_again_after_a_border_counts_on(new_story) -> None:
    story = new_story()
    later(story)
    story.add("task", ts_ns=90, event=BORDER, pid=7, tid=7, n_calls=40)
    story.seq[7] = 40
    story.call(7, "close", 3)
    story.task(EXIT, 7, n_calls=41)
    story.task(FORK, 7, parent_pid=1, parent_tid=1)
    story.seq[7] = 0
    story.call(7, "close", 3)
    story.task(END, 7, n_calls=1)
    capture = story.end()
    assert losses(capture) == []
    assert capture.records["syscall"]["seq"].tolist() == [40, 41]


def test_a_border_of_a_thread_that_ended_unseen_is_ignored(new_story) -> None:
    story = new_story()
    later(story)
    story.add("task", ts_ns=90, event=BORDER, pid=7, tid=7, n_calls=40)
    story.call(7, "close", 3)
    capture = story.end()
    assert losses(capture) == []
    assert capture.records["syscall"]["seq"].tolist() == [0]


def test_an_exit_in_the_prelude_is_no_loss(new_story) -> None:
    story = new_story()
    later(story)
    story.add("task", ts_ns=95, event=EXIT, pid=7, tid=7, n_calls=40)
    story.call(8, "close", 3)
    assert losses(story.end()) == []


def test_a_segment_cut_before_its_borders_counts_from_what_is_there(new_story) -> None:
    story = new_story()
    later(story)
    del story.capture.meta["borders"]
    story.seq[7] = 40
    story.call(7, "close", 3)
    assert losses(story.end()) == []


def test_calls_lost_by_nobody_known_are_told_of_a_whole_recording(new_story) -> None:
    story = new_story()
    story.capture.meta |= {"ended": "asked", "lost_records": {"1": 9}}
    story.seq[7] = 4
    story.call(7, "close", 3)
    [located, of_nobody] = losses(story.end())
    assert located == (7, 0, 3, 4)
    assert (of_nobody[0], of_nobody[3]) == (0, 5)


def test_a_prelude_names_descriptors_and_is_not_in_the_trace(new_story) -> None:
    story = new_story()
    later(story)
    story.now = 80
    story.opened(7, "/spool/a", 3, ino=11)
    story.records["prelude"] = story.records.pop("syscall")
    story.records["syscall"] = []
    story.now = 100
    story.call(7, "fsync", 3, ino=11)
    resolved = resolve(story.end())
    assert [resolved.paths[i] for i in resolved.path] == [b"/spool/a"]
    assert resolved.unresolved == 0


@pytest.fixture
def two(new_story) -> list[Capture]:
    """Return two segments with one thread; a string, a stack and an absence are in both."""
    first, second = new_story(), new_story()
    first.add("task", event=WATCHED, pid=2, tid=2)
    first.call(7, "open", "/spool/a", 0, 0, ret=3)
    first.add("switch", tid=7, out_ns=20, in_ns=30, call_ns=15, stack=1)
    first.name("/spool", 2, 0o040700)
    first.add("xattr", tree=1, name="user.a", length=1)
    later(second)
    second.name("/spool", 2, 0o040700)
    second.seen_in(1, "b", 5)
    second.add("xattr", tree=2, name="user.b", length=2)
    second.add("task", event=WATCHED, pid=2, tid=2)
    second.add("task", ts_ns=10, event=BORDER, pid=7, tid=7, n_calls=1)
    second.add("task", ts_ns=101, event=SEEN, pid=7, tid=7, path="/spool")
    second.add("open_file", pid=7, tid=7, fd=3, path="/spool/a")
    second.add("switch", tid=7, out_ns=20, in_ns=30, call_ns=15, stack=1)
    second.seq[7] = 1
    second.call(7, "open", "/spool/b", 0, 0, ret=4)
    second.call(7, "open", "/spool/a", 0, 0, ret=5)
    second.add("switch", tid=7, out_ns=105, in_ns=106, call_ns=104, stack=2)
    captures = [first.end(), second.end()]
    rows = np.zeros((3, STACK_FRAMES), np.uint64)
    rows[1, 0], rows[2, 0] = 5, 6
    captures[0].stacks, captures[1].stacks = rows[[0, 2]], rows
    for capture, lost in zip(captures, ({"2": 3}, {"2": 4, "3": 1}), strict=True):
        capture.meta |= {"lost_records": lost, "compat_calls": 2, "tree": capture.number == 1}
    captures[1].meta |= {"ended": "asked", "end_mono_ns": 200}
    return captures


def test_joined_segments_are_one_capture(two: list[Capture]) -> None:
    whole = join(two)
    calls = whole.records["syscall"]
    assert calls["seq"].tolist() == [0, 1, 2]
    names = [whole.strings[i] for i in calls["path"]]
    assert names == [b"/spool/a", b"/spool/b", b"/spool/a"]
    assert calls["path"][0] == calls["path"][2]
    switches = whole.records["switch"]
    assert whole.stacks[switches["stack"], 0].tolist() == [6, 6]
    assert whole.records["task"]["event"].tolist() == [WATCHED]
    assert len(whole.records["open_file"]) == 0
    assert whole.records["tree"]["parent"].tolist() == [0, 0, 2]
    assert whole.records["xattr"]["tree"].tolist() == [1, 3]
    assert [row[3] for row in losses(whole)] == [7, 1]  # switches and tasks, as counted
    assert whole.meta["lost_records"] == {"2": 7, "3": 1}
    assert (whole.meta["compat_calls"], whole.meta["tree"]) == (4, True)
    assert (whole.meta["ended"], whole.number, whole.closed) == ("asked", 1, True)


def test_a_missing_segment_leaves_the_rest_unclosed(two: list[Capture]) -> None:
    two[1].number = 3
    assert not join(two).closed


def test_an_end_is_only_the_last_segments(two: list[Capture]) -> None:
    two[0].meta |= {"ended": "asked", "end_mono_ns": 99}
    two[1].meta = {}
    meta = join(two).meta
    assert "end_mono_ns" not in meta
    assert "ended" not in meta
    assert meta["spools"]
