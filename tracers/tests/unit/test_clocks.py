"""If the wall clock is set during a recording, times go on with the monotonic clock."""

from pathlib import Path

import pytest

from spoolscope.cli import main as cli
from spoolscope.tracers.convert import convert
from spoolscope.traces.capture import Capture
from spoolscope.traces.join import join
from spoolscope.traces.trace import Trace

START_NS = 1_700_000_000_000_000_000
HOUR_NS = 3_600_000_000_000


def segment(new_story, number: int, began_ns: int, step_ns: int) -> Capture:
    """Return three calls, 10 ns apart; at the end the wall clock was off by ``step_ns``."""
    story = new_story()
    story.capture.meta["spools"][0]["options"] = "rw"
    story.now, story.seq[1] = began_ns, 3 * (number - 1)
    for _ in range(3):
        story.call(1, "stat", "/spool/x")
    capture = story.end()
    capture.number, capture.start_mono_ns = number, began_ns
    capture.meta |= {"end_mono_ns": began_ns + 100, "end_real_ns": START_NS + began_ns + 100}
    capture.meta["end_real_ns"] += step_ns
    return capture


def converted(capture: Capture, at: Path, monkeypatch) -> Trace:
    monkeypatch.setattr("spoolscope.tracers.convert.read_capture", lambda _file: capture)
    at.mkdir()
    convert([at], at, None)
    return Trace.open(at)


def info(trace: Trace, capsys) -> str:
    with pytest.raises(SystemExit):
        cli.main(["info", str(trace.path)])
    return capsys.readouterr().out


@pytest.mark.parametrize(
    ("step_ns", "shown"), [(HOUR_NS, "+3,600.0"), (-HOUR_NS, "-3,600.0"), (-12, "0 s:")]
)
def test_a_step_moves_no_time_and_is_told(step_ns, shown, tmp_path, monkeypatch, new_story, capsys):
    capture = segment(new_story, 1, 0, step_ns)
    capture.start_real_ns = START_NS
    trace = converted(capture, tmp_path / "trace", monkeypatch)
    times = trace.table("syscalls")["ts_ns"].to_pylist()
    assert times == [START_NS + at for at in (5, 15, 25)]
    meta = trace.meta
    assert (meta["start_ns"], meta["duration_ns"]) == (START_NS, 100)
    assert meta["clock_drift_ns"] == step_ns
    assert f"clock drift  {shown}" in info(trace, capsys)


def test_a_step_between_two_segments_leaves_no_gap(tmp_path, monkeypatch, new_story):
    before = segment(new_story, 1, 0, HOUR_NS)
    after = segment(new_story, 2, 100, HOUR_NS)
    before.start_real_ns = START_NS
    after.start_real_ns = START_NS + 100 + HOUR_NS
    trace = converted(join([before, after]), tmp_path / "trace", monkeypatch)
    times = trace.table("syscalls")["ts_ns"].to_pylist()
    assert times == [START_NS + at for at in (5, 15, 25, 105, 115, 125)]
    assert (trace.meta["clock_drift_ns"], trace.meta["duration_ns"]) == (HOUR_NS, 200)


def test_a_recorder_that_died_does_not_know(tmp_path, monkeypatch, new_story, capsys):
    capture = segment(new_story, 1, 0, HOUR_NS)
    del capture.meta["end_mono_ns"], capture.meta["end_real_ns"]
    trace = converted(capture, tmp_path / "trace", monkeypatch)
    assert trace.meta["clock_drift_ns"] is None
    assert "clock drift  not known" in info(trace, capsys)
