"""Processes that convert segments of a divided recording: priority, failures and a violent end."""

import os
import signal

from spoolscope.tracers.series import NICE, Conversion, Job


def test_a_killed_conversion_is_a_failure_and_a_late_one_gets_the_usual_priority(tmp_path):
    segment = tmp_path / "capture-000001.seg"
    os.mkfifo(segment)  # it waits for a writer
    conversion = Conversion(Job([segment]), tmp_path / "trace-000001", None, NICE)
    pid = conversion._process.pid
    assert os.getpriority(os.PRIO_PROCESS, pid) == NICE
    if os.geteuid() == 0:
        conversion.set_nice(0)
        assert os.getpriority(os.PRIO_PROCESS, pid) == 0
    assert conversion.goes_on
    os.kill(pid, signal.SIGKILL)
    assert conversion.end() == "cannot write trace-000001: its conversion was killed"
    assert not conversion.goes_on


def test_what_a_conversion_cannot_read_is_named(tmp_path):
    segment = tmp_path / "capture-000001.seg"
    segment.write_bytes(b"no capture")
    failure = Conversion(Job([segment]), tmp_path / "trace-000001", None, 0).end()
    assert failure.startswith("cannot write trace-000001: ")
    assert segment.exists()
