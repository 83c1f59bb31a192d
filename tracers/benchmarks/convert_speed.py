"""Speed and memory of the conversion of captures: python tracers/benchmarks/convert_speed.py.

Each conversion is a process of its own. Prints calls per CPU-second (user and system, all threads)
and peak memory per call, both without what the process takes before it converts.

With --against, another checkout with a .venv of its own converts the same captures by turns, and
its tables are compared with those of this one, cell by cell; ratios are of pairs of turns.

Captures are given (spoolscope-record writes them; --keep keeps those that are made here), or made
of the loads of this directory; that needs root, mkfs.ext4 and cc.
"""

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from recorder import Recorder
from series import machine
from workloads import WORKLOADS, ground

LOADS = ("delivery", "metadata")
CONVERT = """
import json, resource, sys
from pathlib import Path
from spoolscope.tracers.convert import convert
from spoolscope.traces.private import Hiding

def spent():
    used = resource.getrusage(resource.RUSAGE_SELF)
    peak = next(line for line in open("/proc/self/status") if line.startswith("VmHWM"))
    return used.ru_utime + used.ru_stime, 1024 * int(peak.split()[1])

before = spent()
meta = convert([Path(sys.argv[1])], Path(sys.argv[2]), Hiding(bytes(32)))
after = spent()
json.dump({"calls": meta["counts"]["syscalls"], "cpu_s": after[0] - before[0],
           "bytes": after[1] - before[1]}, sys.stdout)
"""


@dataclass(frozen=True)
class Cost:
    """Cost of one conversion.

    Attributes:
        calls: Calls in the trace.
        cpu_s: CPU time.
        bytes: Peak memory, bytes.
    """

    calls: int
    cpu_s: float
    bytes: int


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("captures", type=Path, nargs="*", help="kept captures")
    parser.add_argument("--against", type=Path, help="another checkout")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--scale", type=float, default=4, help="length of the loads")
    parser.add_argument("--keep", type=Path, help="directory for the captures that are made")
    options = parser.parse_args()
    here = Path(sys.executable)
    others = [options.against / ".venv/bin/python"] if options.against else []
    print(json.dumps(machine()))
    different: list[str] = []
    with _scratch() as work:
        for capture in options.captures or _made(work, options.scale, options.keep):
            different += measure(capture, [here, *others], options.rounds, work)
    return int(bool(different))


def measure(capture: Path, pythons: Sequence[Path], rounds: int, work: Path) -> list[str]:
    """Convert a capture by turns and print the costs; return the tables that are not the same."""
    costs: list[list[Cost]] = [[] for _ in pythons]
    for number in range(rounds):
        turns = list(enumerate(pythons))
        for at, python in turns if number % 2 else reversed(turns):
            costs[at].append(converted(python, capture, work / f"trace{at}"))
    for at, (python, own) in enumerate(zip(pythons, costs, strict=True)):
        rates = sorted(cost.calls / cost.cpu_s for cost in own)
        print(
            f"{capture.name}, {python.parents[2] if at else 'this'}: {own[0].calls:,} calls, "
            f"{statistics.median(rates):,.0f} ({rates[0]:,.0f} to {rates[-1]:,.0f}) a CPU-second, "
            f"{statistics.median(cost.bytes / cost.calls for cost in own):,.0f} bytes a call"
        )
    if len(costs) == 1:
        return []
    pairs = list(zip(*costs, strict=True))
    ratios = sorted(other.cpu_s / own.cpu_s for own, other in pairs)
    memory = statistics.median(own.bytes / other.bytes for own, other in pairs)
    print(
        f"{capture.name}: {statistics.median(ratios):.2f} times as fast "
        f"({ratios[0]:.2f} to {ratios[-1]:.2f}), {memory:.2f} of the memory"
    )
    different = unequal(work / "trace0", work / "trace1")
    print(f"{capture.name}: tables that differ: {', '.join(different) or 'none'}", flush=True)
    return different


def converted(python: Path, capture: Path, trace: Path) -> Cost:
    """Convert a capture in a process of its own."""
    shutil.rmtree(trace, ignore_errors=True)
    trace.mkdir()
    command = [str(python), "-c", CONVERT, str(capture), str(trace)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, cwd="/")
    return Cost(**json.loads(done.stdout))


def unequal(one: Path, other: Path) -> list[str]:
    """Return the names of tables, and of parts of meta.json, that two traces do not share."""
    names = sorted({file.name for trace in (one, other) for file in trace.glob("*.parquet")})
    found = [name for name in names if not _plain(one / name).equals(_plain(other / name))]
    metas = [json.loads((trace / "meta.json").read_text()) for trace in (one, other)]
    keys = {key for meta in metas for key in meta} - {"digest", "digests"}
    return found + sorted(key for key in keys if metas[0].get(key) != metas[1].get(key))


def _plain(file: Path) -> pa.Table:
    """Return a table with texts instead of numbers of texts, which depend on how it was written."""
    table = pq.read_table(file)
    kinds = [
        f.with_type(pa.string()) if pa.types.is_dictionary(f.type) else f for f in table.schema
    ]
    return table.cast(pa.schema(kinds))


@contextmanager
def _scratch() -> Iterator[Path]:
    work = Path(tempfile.mkdtemp(prefix="spoolscope-bench-", dir="/var/tmp"))
    try:
        yield work
    finally:
        shutil.rmtree(work)


def _made(work: Path, scale: float, keep: Path | None) -> Iterator[Path]:
    """Record the loads one after the other, and yield their captures."""
    place = keep or work
    place.mkdir(exist_ok=True)
    for load in (load for load in WORKLOADS if load.name in LOADS):
        capture = place / f"{load.name}.seg"
        with (
            ground() as rig,
            Recorder(rig.spool, rig.work / "capture.seg", snapshot="full") as recorder,
        ):
            rig.run(load, scale=scale)
            recorder.stop()
            shutil.copyfile(recorder.output, capture)
        yield capture


if __name__ == "__main__":
    sys.exit(main())
