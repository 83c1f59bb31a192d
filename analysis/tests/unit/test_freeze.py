"""A freeze returns the trace of its own window, or why there is none."""

import fcntl
import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from spoolscope.cli.freeze import _opened, _Window
from spoolscope.tracers.rolling import own_host
from spoolscope.traces.errors import SpoolscopeError
from spoolscope.traces.recording import Recording, segment_name, started_at, write_control


class Box:
    """A flight recorder's directory; this process is the recorder."""

    def __init__(self, path: Path) -> None:
        self.path, self.captures = path, path / ".capture"
        self.captures.mkdir(parents=True)
        (self.captures / "capture.json").touch()
        self.lock = os.open(self.captures, os.O_RDONLY)
        fcntl.flock(self.lock, fcntl.LOCK_EX)
        self.control()

    def control(self, *, runs: bool = True, **more: object) -> None:
        """Write recording.json."""
        pid = os.getpid()
        started = started_at(pid) if runs else None
        control = {"kind": "frozen", "recorder_pid": pid, "recorder_started": started}
        write_control(self.path, control | more)

    def segments(self, *numbers: int) -> None:
        """Begin segments."""
        for number in numbers:
            (self.captures / segment_name(number)).touch()

    def freezes(self, *numbers: int) -> None:
        """Say that a window was frozen."""
        with (self.captures / "capture.json").open("a") as answers:
            event = {"event": "frozen", "why": "signal", "numbers": numbers}
            answers.write(f"{json.dumps(event)}\n")

    def converts(self, name: str, *numbers: int) -> Path:
        """Make a trace of a window; return it."""
        trace = self.path / name
        trace.mkdir()
        (trace / "meta.json").write_text(json.dumps({"segment": numbers[0]}))
        self.drops(*numbers)
        return trace

    def drops(self, *numbers: int) -> None:
        """Remove segments."""
        for number in numbers:
            (self.captures / segment_name(number)).unlink()


@pytest.fixture
def box(tmp_path: Path) -> Iterator[Box]:
    box = Box(tmp_path / "box")
    yield box
    os.close(box.lock)


def test_the_trace_of_an_earlier_freeze_is_not_returned(box: Box) -> None:
    box.segments(1, 2)
    box.freezes(1)  # it is being converted
    with _Window(Recording.open(box.path)) as window:
        assert window.trace() is None
        box.converts("frozen-000001", 1)
        assert window.trace() is None
        box.segments(3)
        box.freezes(2)
        assert window.trace() is None
        assert box.converts("frozen-000002", 2) == window.trace()


def test_a_failure_of_its_conversion_ends_a_freeze(box: Box) -> None:
    box.segments(1, 2)
    with _Window(Recording.open(box.path)) as window:
        box.freezes(1, 2)
        other = {"trace": "frozen-000001", "failure": "another", "segments": [7]}
        box.control(failures=[other])
        assert window.trace() is None
        failure = "cannot write frozen-000002: its conversion was killed"
        box.control(failures=[other, {"failure": failure, "segments": [1, 2]}])
        with pytest.raises(SpoolscopeError, match=failure):
            window.trace()


def test_a_window_that_is_dropped_ends_a_freeze(box: Box) -> None:
    box.segments(1)
    with _Window(Recording.open(box.path)) as window:
        box.freezes(1)
        box.drops(1)
        with pytest.raises(SpoolscopeError, match="has dropped this window"):
            window.trace()


@pytest.mark.parametrize("made", [False, True])
def test_a_freeze_ends_with_a_recorder_that_dies(box: Box, *, made: bool) -> None:
    box.segments(1)
    with _Window(Recording.open(box.path)) as window:
        box.control(runs=False)
        assert window.trace() is None  # its last window is being converted
        trace = box.converts("frozen-000001", 1) if made else None
        fcntl.flock(box.lock, fcntl.LOCK_UN)
        if made:
            assert window.trace() == trace
        else:
            with pytest.raises(SpoolscopeError, match="ended before it could freeze"):
                window.trace()


def test_the_flight_recorder_behind_rollups_is_found(tmp_path: Path) -> None:
    def started(hour: int, host: str, *, runs: bool) -> Box:
        box = Box(tmp_path / f"windows-20260101T{hour:02}0000Z")
        box.control(runs=runs)
        (box.path / "host.json").write_text(json.dumps(host))
        return box

    (tmp_path / "schema=1" / "minutes").mkdir(parents=True)
    boxes = [started(1, "another", runs=True)]
    with pytest.raises(SpoolscopeError, match="has roll-ups, but no flight recorder of this host"):
        _opened(tmp_path)
    boxes += [started(2, own_host(), runs=True), started(3, own_host(), runs=False)]
    boxes.append(started(4, "another", runs=True))
    assert _opened(tmp_path).path == boxes[1].path
    boxes.append(started(5, own_host(), runs=True))
    assert _opened(tmp_path).path == boxes[-1].path
    assert _opened(boxes[1].path).path == boxes[1].path
    with pytest.raises(SpoolscopeError, match="is not a recording of several traces"):
        _opened(tmp_path / "schema=1")
    for box in boxes:
        os.close(box.lock)
