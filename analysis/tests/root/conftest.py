"""Recordings of small programs; programs of layers; a disk."""

import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

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


@pytest.fixture
def disk(tmp_path):
    """Yield the path of a loop device of 1100 MiB, which stands in for a disk."""
    with (tmp_path / "disk").open("wb") as file:
        file.truncate(1100 << 20)
    words = ["losetup", "--find", "--show", str(tmp_path / "disk")]
    device = subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip()
    yield Path(device)
    subprocess.run(["losetup", "--detach", device], check=True)
