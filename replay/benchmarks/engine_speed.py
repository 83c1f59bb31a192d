"""How fast the replayer issues calls, on tmpfs and without any calls at all.

Replays a trace as fast as possible, in recorded order, and checks every result: any trace with
--trace, else the largest shipped sample.
"""

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from spoolscope.replay.plan import build
from spoolscope.traces.native import find_binary
from spoolscope.traces.trace import Trace

SAMPLES = Path(__file__).resolve().parents[2] / "traces" / "samples"
TMPFS = Path("/dev/shm")
GOAL = 300_000


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trace", type=Path, help="trace directory")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    trace = options.trace or shipped_trace()
    if trace is None:
        print("no trace: give --trace, or make the sample first")
        return 0
    with tempfile.TemporaryDirectory(prefix="spoolscope-bench-", dir=TMPFS) as scratch:
        plan = Path(scratch) / "plan"
        began = time.monotonic()
        summary = build(Trace.open(trace), plan)
        built_s = time.monotonic() - began
        print(f"trace {trace}: {summary.syscalls:,} calls of {summary.threads} threads")
        print(f"plan        {built_s:7.2f} s   {summary.syscalls / built_s:12,.0f} calls/s")
        rates = {
            "no calls": [run(plan, Path(scratch), "--noop") for _ in range(options.rounds)],
            "tmpfs": [run(plan, Path(scratch)) for _ in range(options.rounds)],
        }
    for name, runs in rates.items():
        rate = statistics.median(summary.ops / row["makespan_ns"] * 1e9 for row in runs)
        wrong = max(row["diverged"] + row["skipped"] for row in runs)
        print(f"{name:<12}{rate:12,.0f} calls/s (median of {len(runs)}), {wrong} not the same")
    slow = rate < GOAL
    print(f"goal: {GOAL:,} calls/s on tmpfs in recorded order: {'missed' if slow else 'reached'}")
    return int(slow)


def shipped_trace() -> Path | None:
    """Return the largest sample trace, if there is one."""
    found = [meta.parent for meta in SAMPLES.glob("*/meta.json")]
    return max(found, key=lambda path: (path / "syscalls.parquet").stat().st_size, default=None)


def run(plan: Path, scratch: Path, *words: str) -> dict[str, Any]:
    target = scratch / "target"
    target.mkdir()
    command = [find_binary("spoolscope-replay"), "run", plan, "--target", target, "--pace", "afap"]
    done = subprocess.run([*map(str, command), *words], capture_output=True, text=True, check=True)
    shutil.rmtree(target)
    summary: dict[str, Any] = json.loads(done.stdout)
    return summary


if __name__ == "__main__":
    sys.exit(main())
