"""Fresh filesystems on loop images, and recordings of small programs on them."""

import subprocess
import sys
import textwrap
from contextlib import ExitStack

import pytest

from spoolscope.tracers.session import Request, record

MKFS = {
    "ext4": ["mkfs.ext4", "-q", "-F"],
    "xfs": ["mkfs.xfs", "-q", "-f"],
    "btrfs": ["mkfs.btrfs", "-q", "-f"],
}


@pytest.fixture
def mounted(tmp_path, require):
    """Return ``mounted(fstype)``: the mount point of a fresh loop image."""
    with ExitStack() as cleanup:

        def mount(fstype):
            require("bpf")
            require(fstype)
            image, point = tmp_path / f"{fstype}.img", tmp_path / fstype
            point.mkdir()
            with image.open("wb") as file:
                file.truncate(512 << 20)
            subprocess.run([*MKFS[fstype], image], check=True, stderr=subprocess.DEVNULL)
            subprocess.run(["mount", "-o", "loop,noatime", image, point], check=True)
            cleanup.callback(subprocess.run, ["umount", point], check=True)
            return point

        yield mount


@pytest.fixture
def recorded(tmp_path):
    """Return ``recorded(mount, program)``: the trace of a Python program, told the mount."""

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
                snapshot=False,
            )
        )
        assert summary.command_status == 0
        return summary.trace

    return run
