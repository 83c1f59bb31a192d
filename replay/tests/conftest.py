"""Small traces written by hand with the schema, one call per line."""

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from spoolscope_testing.script import Script

from spoolscope.replay.engine import Engine
from spoolscope.replay.outcomes import read_outcomes
from spoolscope.replay.plan import build
from spoolscope.traces.native import find_binary
from spoolscope.traces.trace import Trace


@pytest.fixture
def script() -> Script:
    return Script()


@pytest.fixture
def target(tmp_path) -> Path:
    """An empty directory to replay into."""
    path = tmp_path / "target"
    path.mkdir()
    return path


@pytest.fixture
def execute(tmp_path: Path) -> Callable[..., tuple[Any, dict[str, Any]]]:
    """Return a function that runs the engine alone, so that the target can be examined afterwards.

    It returns the outcomes, and how the target differs from the trace.
    """

    def run(
        script: Script, target: Path, *words: str, pace: str = "afap"
    ) -> tuple[Any, dict[str, Any]]:
        plan, outcomes = tmp_path / "plan", tmp_path / "outcomes"
        build(Trace.open(script.write(tmp_path / "trace")), plan)
        command = [find_binary("spoolscope-replay"), "run", plan, "--target", target]
        done = subprocess.run(
            [*command, "--pace", pace, "--outcomes", outcomes, *words],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return read_outcomes(outcomes), Engine(plan).verify(target)

    return run
