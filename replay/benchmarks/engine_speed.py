"""How fast plans are made and calls issued, beside a plain C loop and fio's iolog replay.

Every round takes all ways in random order, each on a fresh fixture on tmpfs; figures are medians
over rounds with their range, ratios are to the C loop of the same round. The goals are those of
docs/inside/replaying.md. The engine checks every result; any trace with --trace, else the largest
sample.
"""

import argparse
import json
import random
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anchors
import numpy as np
import pyarrow.parquet as pq

from spoolscope.replay.engine import Engine
from spoolscope.replay.outcomes import Plan, read_outcomes, read_plan, write_parquet
from spoolscope.replay.plan import build
from spoolscope.traces.flat import DTYPES
from spoolscope.traces.native import find_binary
from spoolscope.traces.trace import Trace

SAMPLES = Path(__file__).resolve().parents[2] / "traces" / "samples"
TMPFS = Path("/dev/shm")
GOALS = {"no calls": 3_000_000, "tmpfs": 500_000}
PLAN_GOAL = 1_000_000
BYTES_GOAL = 20
# Descriptors that fio has besides those of its log.
OWN_FILES = 100


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trace", type=Path, help="trace directory")
    parser.add_argument("--rounds", type=int, default=10)
    options = parser.parse_args()
    trace = options.trace or shipped_trace()
    if trace is None:
        print("no trace: give --trace, or make the sample first")
        return 0
    with tempfile.TemporaryDirectory(prefix="spoolscope-bench-", dir=TMPFS) as scratch:
        place = Path(scratch)
        missed = plan_speed(trace, place)
        missed += issue_speed(place, options.rounds)
        missed += stored_bytes(place)
    print(f"goals missed: {', '.join(missed) or 'none'}")
    return int(bool(missed))


def shipped_trace() -> Path | None:
    """Return the largest sample trace, if there is one."""
    found = [meta.parent for meta in SAMPLES.glob("*/meta.json")]
    return max(found, key=lambda path: (path / "syscalls.parquet").stat().st_size, default=None)


def plan_speed(trace: Path, place: Path) -> list[str]:
    """Make the plan; then let the engine check it and derive its order."""
    opened, plan = Trace.open(trace), place / "plan"
    build(opened, plan)  # once for the libraries
    plan.unlink()  # giving back its pages is no part of making the next plan
    began = time.process_time()
    summary = build(opened, plan)
    python_s = time.process_time() - began
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    Engine(plan).order()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    native_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    print(f"trace {trace.name}: {summary.syscalls:,} calls of {summary.threads} threads")
    rate = summary.syscalls / (python_s + native_s)
    print(
        f"plan: {python_s:.2f} + {native_s:.2f} CPU-s (trace to plan, check and order), "
        f"{rate:,.0f} calls per CPU-second"
    )
    return [] if rate >= PLAN_GOAL else ["plan"]


def issue_speed(place: Path, rounds: int) -> list[str]:
    """Take every way once a round, in random order."""
    plan_file, plan = place / "plan", read_plan(place / "plan")
    anchors.write_script(plan, threads_of(plan_file), place)
    loop = anchors.build_loop(place)
    ways: dict[str, Callable[[], anchors.Rate]] = {
        "C loop": lambda: on_fixture(plan_file, place, lambda t: anchors.run_loop(loop, place, t)),
        "no calls": lambda: engine(plan_file, place, "--noop"),
        "no calls, no order": lambda: engine(plan_file, place, "--noop", "--order", "none"),
        "tmpfs": lambda: engine(plan_file, place),
    }
    if fio_can(plan, place):
        ways["fio"] = lambda: anchors.run_fio(place)
    found: dict[str, list[anchors.Rate]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name in random.sample(list(ways), len(ways)):
            found[name].append(ways[name]())
    print(f"{'way':<20}{'calls':>9}{'calls/s':>12}{'from':>12}{'to':>12}{'ratio':>7}{'wrong':>7}")
    for name, runs in found.items():
        rates = sorted(run.per_s for run in runs)
        pairs = zip(runs, found["C loop"], strict=True)
        ratio = statistics.median(run.per_s / base.per_s for run, base in pairs)
        wrong = max(run.wrong for run in runs)
        print(f"{name:<20}{runs[0].calls:>9,}{statistics.median(rates):>12,.0f}{rates[0]:>12,.0f}"
              f"{rates[-1]:>12,.0f}{ratio:>7.2f}{wrong:>7,}")  # fmt: skip
    medians = {name: statistics.median(run.per_s for run in found[name]) for name in GOALS}
    return [name for name, goal in GOALS.items() if medians[name] < goal]


def fio_can(plan: Plan, place: Path) -> bool:
    """Write fio's log; return whether fio can replay it, and print why not."""
    if not shutil.which("fio"):
        print("fio is missing: apt-get install fio")
        return False
    anchors.write_iolog(plan, place)
    n_files = sum(1 for _ in (place / "data").iterdir())
    most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if n_files + OWN_FILES > most:
        print(f"fio would open {n_files:,} files at once, of {most:,} (ulimit -n): left out")
        return False
    return True


def threads_of(plan: Path) -> Any:
    """Return the threads of a plan."""
    raw = np.memmap(plan, np.uint8, "r")
    header = raw[: DTYPES["plan_header"].itemsize].view(DTYPES["plan_header"])[0]
    at, size = int(header["threads_at"]), DTYPES["plan_thread"].itemsize
    return raw[at : at + int(header["n_threads"]) * size].view(DTYPES["plan_thread"])


def on_fixture(
    plan: Path, place: Path, work: Callable[[Path], anchors.Rate], name: str = "target"
) -> anchors.Rate:
    """Do something in a fresh fixture."""
    target = place / name
    target.mkdir()
    Engine(plan).fixture(target)
    try:
        return work(target)
    finally:
        shutil.rmtree(target)


def engine(plan: Path, place: Path, *words: str) -> anchors.Rate:
    """Replay as fast as possible."""

    def work(target: Path) -> anchors.Rate:
        command = [find_binary("spoolscope-replay"), "run", plan, "--target", target, "--prepared",
                   "--pace", "afap", "--outcomes", place / "outcomes", *words]  # fmt: skip
        done = subprocess.run([*map(str, command)], capture_output=True, text=True, check=True)
        row: dict[str, Any] = json.loads(done.stdout)
        per_s = row["ops"] / row["makespan_ns"] * 1e9
        return anchors.Rate(per_s, row["ops"], row["diverged"] + row["skipped"] + row["pending"])

    return on_fixture(plan, place, work)


def stored_bytes(place: Path) -> list[str]:
    """Print how many bytes per call a run leaves on disk; the plan is gone when it ends."""
    plan = read_plan(place / "plan")
    engine(place / "plan", place)
    outcomes = read_outcomes(place / "outcomes")
    write_parquet(plan, outcomes, place / "outcomes.parquet")
    size = (place / "outcomes.parquet").stat().st_size / len(outcomes)
    scratch = (place / "plan").stat().st_size / len(outcomes)
    rows = pq.read_metadata(place / "outcomes.parquet").num_rows
    print(f"outcomes.parquet: {size:.1f} bytes an operation of {rows:,}; while it runs the plan "
          f"takes {scratch:.0f} and the outcomes {DTYPES['outcome'].itemsize}")  # fmt: skip
    return [] if size <= BYTES_GOAL else ["bytes"]


if __name__ == "__main__":
    sys.exit(main())
