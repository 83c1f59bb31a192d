"""Cost of roll-ups: CPU time in the kernel, of the recorder and of its front end, and bytes.

The load makes cheap calls at a fixed rate, by turns without and with the recorder. The time that
its calls take longer is that of the BPF programs and of the hooks on which they run; their run-time
statistics are the second source. Needs root, mkfs.ext4 and cc.
"""

import argparse
import json
import os
import resource
import signal
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import bpf
from series import ahead_of_others, machine
from workloads import Ground, ground

DAY_MINUTES = 1440


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rate", type=int, default=100_000, help="calls per second")
    parser.add_argument("--rounds", type=int, default=3, help="of both turns")
    parser.add_argument("--seconds", type=float, default=8, help="of a turn")
    parser.add_argument("--whole", type=float, default=65, help="of the run with a whole minute")
    options = parser.parse_args()
    with ahead_of_others(), ground() as place:
        found = {"machine": machine(), "calls_per_s": options.rate, **measure(place, options)}
    json.dump(found, sys.stdout, indent=2)
    print()


def measure(place: Ground, options: argparse.Namespace) -> dict[str, Any]:
    (place.spool / "firehose").write_bytes(b"x" * 4096)
    without, having = [], []
    for _ in range(options.rounds):
        without.append(load(place, options.rate, options.seconds))
        with_recorder = Recorder(place, "turn")
        having.append(load(place, options.rate, options.seconds))
        with_recorder.end()
    recorder = Recorder(place, "whole")
    with bpf.run_time_statistics():
        before, began = recorder.spent(), time.monotonic()
        calls, _ = load(place, options.rate, options.whole)
        after, wall_ns = recorder.spent(), (time.monotonic() - began) * 1e9
        programs = recorder.programs()
    said = recorder.end()
    cpu = {part: 100 * (after[part] - before[part]) / wall_ns for part in after}
    return {
        "load_cpu_ns_per_call_without": [ns / n for n, ns in without],
        "load_cpu_ns_per_call_with": [ns / n for n, ns in having],
        "longer_ns_per_call": statistics.median(ns / n for n, ns in having)
        - statistics.median(ns / n for n, ns in without),
        "bpf_ns_per_call": (after["kernel"] - before["kernel"]) / calls,
        "percent_of_a_cpu": cpu,
        "percent_of_a_cpu_in_all": sum(cpu.values()),
        "percent_by_program": {
            name: {
                "percent": round(100 * found.ns / wall_ns, 3),
                "runs_per_s": round(found.runs / wall_ns * 1e9),
                "ns_per_run": round(found.ns / max(found.runs, 1)),
            }
            for name, found in sorted(programs.items(), key=lambda one: -one[1].ns)[:8]
        },
        "own_percent_of_a_cpu": 100 * said["recorder_ns"] / said["covered_ns"],
        "lost": said["lost"],
        "bytes_of_a_day": size_of(recorder.output) / said["minutes"] * DAY_MINUTES,
    }


def load(place: Ground, rate: int, seconds: float) -> tuple[int, float]:
    """Make calls; return their number and the CPU time of the load, ns."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    words = [place.work / "firehose", place.spool / "firehose", os.cpu_count() or 1, rate, seconds]
    done = subprocess.run(list(map(str, words)), capture_output=True, text=True, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return int(json.loads(done.stdout)["calls"]), spent * 1e9


class Recorder:
    """``spoolscope record --rollup``, seen from outside."""

    def __init__(self, place: Ground, name: str) -> None:
        self.output = place.work / f"rollups-{name}-{time.monotonic_ns()}"
        program = Path(sys.executable).with_name("spoolscope")
        command = [program, "record", "--rollup", "--spool", place.spool, "-o", self.output]
        command += ["--keep-names", "--json"]
        self._process = subprocess.Popen(
            [str(word) for word in command],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert self._process.stderr is not None
        while "recording" not in self._process.stderr.readline():
            if self._process.poll() is not None:
                raise SystemExit(f"the recorder ended: {self._process.stderr.read()}")
        words = ["pgrep", "-P", str(self._process.pid), "spoolscope-reco"]
        self._native = int(subprocess.run(words, stdout=subprocess.PIPE).stdout.split()[0])

    def programs(self) -> dict[str, bpf.RunTime]:
        """Return the run time of the kernel's programs by name."""
        return bpf.programs_of(self._native)

    def spent(self) -> dict[str, int]:
        """Return CPU time so far, ns: in the kernel's programs, native, of the front end."""
        return {
            "kernel": sum(program.ns for program in self.programs().values()),
            "native": cpu_ns(self._native),
            "front_end": cpu_ns(self._process.pid),
        }

    def end(self) -> dict[str, Any]:
        """End it, and return what it says."""
        self._process.send_signal(signal.SIGINT)
        said, errors = self._process.communicate()
        if self._process.returncode:
            raise SystemExit(f"the recorder failed: {errors}")
        result: dict[str, Any] = json.loads(said)
        return result


def cpu_ns(pid: int) -> int:
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks)


def size_of(place: Path) -> int:
    return sum(file.stat().st_size for file in place.rglob("*.parquet"))


if __name__ == "__main__":
    main()
