"""What several tests replay."""

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from spoolscope.replay.candidates import parse
from spoolscope.replay.targets import SMALLEST_BYTES, prepared
from spoolscope.tracers.session import Request, record

ORACLE = Path(__file__).resolve().parents[3] / "tracers" / "tests" / "oracle"


@pytest.fixture
def every_call(
    tmp_path: Path, require: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> Path:
    """Return the trace of a program that makes every call of calls.txt, on ext4."""
    require("bpf")
    require("ext4")
    program = tmp_path / "allcalls"
    sources = sorted(map(str, ORACLE.glob("*.c")))
    subprocess.run(["cc", "-O1", "-static", "-pthread", "-o", str(program), *sources], check=True)
    monkeypatch.setenv("ALLCALLS_COUNTS", str(tmp_path / "counts"))
    with prepared(parse("ext4"), tmp_path, SMALLEST_BYTES) as spool:
        command = [str(program), str(spool.mount)]
        done = record(Request([spool.mount], tmp_path / "trace", command=command))
    assert done.command_status == 0
    return done.trace
