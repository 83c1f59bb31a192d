"""A reused tid is another thread, with its own row, numbers and losses."""

from pathlib import Path

import pytest

from spoolscope.tracers.convert import convert
from spoolscope.tracers.lives import END, EXEC, EXIT, FORK, SEEN, continue_numbering
from spoolscope.tracers.losses import loss_columns
from spoolscope.tracers.resolve import resolve
from spoolscope.tracers.threads import Threads
from spoolscope.traces.capture import Capture
from spoolscope.traces.comms import Comms


def losses(capture: Capture) -> list[tuple[int, int, int, int]]:
    columns = loss_columns(capture, continue_numbering(capture))
    names = ("pid", "first_seq", "last_seq", "n")
    return list(zip(*(columns[name].tolist() for name in names), strict=True))


def session(story, pid: int, calls: int, counted: int | None = None) -> None:
    """Add one short life of a process."""
    story.task(FORK, pid, parent_pid=1, parent_tid=1)
    story.seq[pid] = 0
    for _ in range(calls):
        story.call(pid, "stat", "/spool/x")
    if counted != 0:
        story.task(EXIT, pid, n_calls=calls if counted is None else counted)


def test_losses_are_located_by_thread_and_seq(new_story) -> None:
    story = new_story()
    for seq in (0, 1, 5, 6):
        story.seq[1] = seq
        story.call(1, "stat", "x")
    story.task(EXIT, 1, n_calls=9)
    assert losses(story.end()) == [(1, 2, 4, 3), (1, 7, 8, 2)]


def test_a_reused_tid_loses_nothing(new_story) -> None:
    story = new_story()
    for calls in (3, 1, 4):
        session(story, 9, calls)
    capture = story.end()
    assert losses(capture) == []
    assert capture.records["syscall"]["seq"].tolist() == list(range(8))


def test_losses_of_a_reused_tid_are_located_in_its_lives(new_story) -> None:
    story = new_story()
    session(story, 9, 3, counted=5)  # 0 1 2, lost 3 4
    story.task(FORK, 9, parent_pid=1, parent_tid=1)
    for seq in (1, 3):  # lost 5, recorded 6, lost 7, recorded 8
        story.seq[9] = seq
        story.call(9, "stat", "/spool/x")
    story.task(END, 9, n_calls=5)  # lost 9
    assert sorted(losses(story.end())) == [(9, 3, 4, 2), (9, 5, 5, 1), (9, 7, 7, 1), (9, 9, 9, 1)]


@pytest.mark.parametrize("lost_event", [FORK, EXIT, None])
def test_a_life_is_seen_even_if_the_record_of_its_beginning_is_lost(lost_event, new_story) -> None:
    story = new_story()
    session(story, 9, 3)
    session(story, 9, 3)
    lost = (FORK, EXIT) if lost_event is None else (lost_event,)
    story.records["task"] = [t for t in story.records["task"] if int(t["event"]) not in lost]
    assert losses(story.end()) == []


def test_a_thread_that_executes_goes_on_under_its_leaders_tid(new_story) -> None:
    story = new_story()
    story.task(FORK, 9, tid=10, parent_pid=9, parent_tid=9)
    story.call(9, "stat", "/spool/x")
    for _ in range(4):
        story.call(9, "stat", "/spool/x", tid=10)
    story.task(EXIT, 9, n_calls=1)
    story.task(EXEC, 9)
    story.seq[9] = 4
    story.call(9, "execve", "/bin/true")
    story.call(9, "stat", "/spool/x")
    story.task(EXIT, 9, n_calls=6)
    capture = story.end()
    assert losses(capture) == []
    of_9 = capture.records["syscall"]["tid"] == 9
    assert capture.records["syscall"]["seq"][of_9].tolist() == [0, 1, 2]


def test_every_life_has_its_row(new_story) -> None:
    story = new_story()
    story.task(SEEN, 9, path="/spool", comm=b"old")
    story.call(9, "stat", "/spool/x")
    story.task(EXIT, 9, n_calls=1, exit_code=256)
    story.task(SEEN, 9, path="/spool", comm=b"old")  # the snapshot had read it just before
    story.task(FORK, 9, parent_pid=3, parent_tid=3, comm=b"new")
    story.seq[9] = 0
    story.call(9, "stat", "/spool/x")
    capture = story.end()
    lives, comms = continue_numbering(capture), Comms(None)
    threads = Threads(capture, lives, comms, lambda _path: 5, set())
    columns = threads.columns(resolve(capture).state)
    rows = {name: columns[name].to_pylist() for name in ("comm", "start_ns", "end_ns", "cwd_id")}
    assert rows == {
        "comm": ["old", "new"],
        "start_ns": [None, 50],
        "end_ns": [30, None],
        "cwd_id": [5, None],
    }


def test_a_trace_with_reused_tids_is_complete(tmp_path: Path, monkeypatch, new_story) -> None:
    story = new_story()
    session(story, 9, 3)
    session(story, 9, 2)
    monkeypatch.setattr("spoolscope.tracers.convert.read_capture", lambda _file: story.end())
    meta = convert([tmp_path], tmp_path, None)
    assert (meta["complete"], meta["lost"], meta["counts"]["threads"]) == (True, 0, 2)
