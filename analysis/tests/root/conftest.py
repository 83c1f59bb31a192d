"""Recordings of small programs; programs of layers."""

import shutil
import sys
import textwrap

import pytest

from spoolscope.replay.images import program_path
from spoolscope.replay.layers import LAYERS
from spoolscope.tracers.session import Request, record


@pytest.fixture(scope="session")
def require_layers(require):
    """Return ``require_layers()``: skip, or fail, without the programs of dm-crypt, LVM and md."""

    def check():
        for layer in LAYERS.values():
            if not shutil.which(layer.make[0][0], path=program_path()):
                require("layers", f"no program {layer.make[0][0]}")

    return check


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
