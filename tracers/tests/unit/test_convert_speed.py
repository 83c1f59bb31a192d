"""The benchmark of conversions converts by turns, and finds what is not the same."""

import sys
from pathlib import Path

import convert_speed
from spoolscope_testing.capture_story import CaptureStory

from spoolscope.tracers.convert import write

CAPTURE = Path(__file__).parents[2] / "fuzz" / "corpus" / "converted-ten-kinds-of-records"


def test_a_checkout_converts_as_it_does_itself(tmp_path, capsys):
    own = Path(sys.executable)
    assert convert_speed.measure(CAPTURE, [own, own], 1, tmp_path) == []
    assert "tables that differ: none" in capsys.readouterr().out


def test_a_table_that_differs_is_named(tmp_path):
    traces = []
    for name in ("openat", "creat"):
        story = CaptureStory()
        story.call(1, name, "/spool/x", ret=3)
        traces.append(tmp_path / name)
        traces[-1].mkdir()
        write(story.end(), traces[-1], None)
    assert "syscalls.parquet" in convert_speed.unequal(*traces)
    assert convert_speed.unequal(traces[0], traces[0]) == []
