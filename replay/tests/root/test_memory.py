"""Memory does not grow with the trace: each step of a long replay in a memory cgroup of its own."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.root
BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "memory.py"
CALLS = 1_000_000
STEPS = {"check and order": 8, "fixture": 8, "run (no calls made)": 32}
"""Most MiB that the kernel cannot reclaim; with all in memory it was 54, 55 and 66."""


def test_what_a_replay_needs_in_memory_does_not_grow_with_the_trace(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, BENCHMARK, "--calls", str(CALLS), "--limit", "1024", "--work", tmp_path],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "FAILED" not in done.stdout
    found = dict(re.findall(r"^(.+?) +([\d,]+) MiB +[\d.]+ CPU-s", done.stdout, re.MULTILINE))
    for step, most_mib in STEPS.items():
        assert int(found[step].replace(",", "")) <= most_mib, done.stdout
