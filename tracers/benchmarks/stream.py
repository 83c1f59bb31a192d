"""Costs of a recording outside the kernel: the consumer's CPU, bytes in the ring, losses.

The firehose makes a million calls a second, to measure losses and the recorder's needs.
"""

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from recorder import Recorder
from workloads import Ground, Workload

from spoolscope.traces.flat import DTYPES

RATE = 1_000_000
SYSCALL = 1  # enum spsc_kind


def measure(ground: Ground, workload: Workload, scale: float) -> dict[str, Any]:
    """Return the costs of a load in the consumer and the ring, per call on the spool."""
    with Recorder(ground.spool, ground.work / "capture.seg", watch=True) as recorder:
        load = ground.run(workload, scale=scale)
        return observed(recorder, load.calls)


def observed(recorder: Recorder, calls: int) -> dict[str, Any]:
    """End a recording and return its costs per call."""
    cpu_ns, cpu_share = recorder.consumed()
    done = recorder.stop()
    return {
        "calls": calls,
        "lost": recorder.lost,
        "consumer_cpu_share": cpu_share,
        "consumer_ns_per_call": cpu_ns / calls,
        "ring_bytes_per_call": recorder.ring_bytes / calls,
        "ring_high_water_bytes": recorder.high_water_bytes,
        "capture_bytes_per_call": done["bytes"] / calls,
    }


def firehose(ground: Ground, seconds: float) -> dict[str, Any]:
    """Return rates with and without the recorder, and numbers of recorded and lost calls.

    ``unaccounted``: calls, by the load's own count, that are neither in the capture nor counted
    as lost. The capture has a few more calls, of the start of the load.
    """
    file = ground.spool / "firehose"
    file.write_bytes(b"x" * 4096)
    command = [str(ground.work / "firehose"), str(file), str(os.cpu_count() or 1), str(RATE)]
    untraced = answer([*command, str(min(seconds, 2.0))])
    output = ground.work / "capture.seg"
    with Recorder(ground.spool, output, watch=True) as recorder:
        traced = answer([*command, str(seconds)])
        result = observed(recorder, traced["calls"])
        recorded = sum(count_records(part) for part in parts(output))
    file.unlink()
    return {
        **result,
        "seconds": traced["ns"] / 1e9,
        "wanted_calls_per_s": RATE,
        "untraced_calls_per_s": untraced["calls"] / untraced["ns"] * 1e9,
        "calls_per_s": traced["calls"] / traced["ns"] * 1e9,
        "unaccounted": max(0, traced["calls"] - recorded - result["lost"]),
    }


def answer(command: list[str]) -> dict[str, int]:
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    counts: dict[str, int] = json.loads(done.stdout)
    return counts


def parts(output: Path) -> list[Path]:
    return [p for p in output.rglob("*") if p.is_file()] if output.is_dir() else [output]


def count_records(capture: Path) -> int:
    """Count calls by the chunk headers: a capture of millions is too large to read whole."""
    return sum(int(header["n_records"]) for header in chunks(capture) if header["kind"] == SYSCALL)


def chunks(capture: Path) -> Iterator["np.void"]:
    """Yield the header of every chunk."""
    with capture.open("rb") as file:
        file.seek(DTYPES["file_header"].itemsize)
        size = DTYPES["chunk_header"].itemsize
        while len(raw := file.read(size)) == size:
            header = np.frombuffer(raw, DTYPES["chunk_header"])[0]
            yield header
            file.seek(int(header["stored_bytes"]), os.SEEK_CUR)
