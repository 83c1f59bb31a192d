"""Recordings of small programs."""

import sys
import textwrap

import pytest

from spoolscope.tracers.session import Request, record


@pytest.fixture
def recorded(tmp_path):
    """Return ``recorded(mount, program)``: the trace of a Python program that gets the mount."""

    def run(mount, program):
        script = tmp_path / "program.py"
        script.write_text(textwrap.dedent(program))
        summary = record(
            Request(
                spools=[mount],
                output=tmp_path / "trace",
                command=[sys.executable, str(script), str(mount)],
                duration_s=None,
                pids=[],
                cgroups=[],
                comms=[],
                keep_names=True,
                snapshot="none",
            )
        )
        assert summary.command_status == 0
        return summary.trace

    return run
