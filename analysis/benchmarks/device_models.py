"""Accuracy of the times of device models against their figures, by fio.

Writes DEVICE-MODELS.md. Expected values are computed here from the figures alone: the mean of many
random seeks, half a turn, the data; latency and its spread; the limits. Options: ``--rounds N``
(3), ``--seconds N`` of fio for each figure (3), and the names of models. Needs root, FUSE and fio.
"""

import argparse
import json
import math
import os
import platform
import random
import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from spoolscope.lab.slowdisk import SlowDisk
from spoolscope.traces.devices import DeviceModel, device_models

SIZE_BYTES = 2 << 30
TEXT = Path(__file__).parents[1] / "DEVICE-MODELS.md"
BLOCK, PIECE = 4096, 1 << 20
FIGURES: dict[str, tuple[str, dict[str, Any]]] = {
    "random read, one by one": ("us", {"rw": "randread", "bs": BLOCK, "iodepth": 1}),
    "random write, one by one": ("us", {"rw": "randwrite", "bs": BLOCK, "iodepth": 1}),
    "random reads, 32 at once": ("a second", {"rw": "randread", "bs": BLOCK, "iodepth": 32}),
    "sequential read": ("MB/s", {"rw": "read", "bs": PIECE, "iodepth": 4, "size": "128m"}),
    "sequential write": ("MB/s", {"rw": "write", "bs": PIECE, "iodepth": 4, "size": "128m"}),
    "write and flush": ("a second", {"rw": "randwrite", "bs": BLOCK, "iodepth": 1, "fsync": 1}),
}


def expected(model: DeviceModel) -> dict[str, float]:
    """Return the expected values of those FIGURES that follow from the figures of a model."""
    spec = json.loads(model.json)
    return _rotating(spec) if spec["kind"] == "rotating" else _solid(spec)


def _rotating(spec: dict[str, Any]) -> dict[str, float]:
    turn_us = 60e6 / spec["rpm"]
    mean_mb_s = (spec["outer_mb_s"] + spec["inner_mb_s"]) / 2
    data = max(spec["members"] - 1, 1)
    read = _mean_seek_us(spec["seek_ms"]) + turn_us / 2 + BLOCK / mean_mb_s + spec["command_us"]
    found = {"random read, one by one": read, "sequential read": spec["outer_mb_s"] * data}
    if spec["members"] == 1:
        found["sequential write"] = spec["outer_mb_s"]
        if not spec["write_cache_kib"]:
            found |= {"random write, one by one": read, "write and flush": 1e6 / read}
    return found


def _mean_seek_us(seek_ms: list[float]) -> float:
    """Return the mean over random pairs of places, by the curve that spec.rs describes."""
    following, third, full = seek_ms
    draw, total, pairs = random.Random(1), 0.0, 100_000
    for _ in range(pairs):
        part = abs(draw.random() - draw.random())
        near = following + (third - following) * math.sqrt(3 * part)
        total += near if part <= 1 / 3 else third + (full - third) * (part - 1 / 3) * 1.5
    return total / pairs * 1e3


def _solid(spec: dict[str, Any]) -> dict[str, float]:
    factor = math.exp(spec["spread"] ** 2 / 2)
    limit = spec["iops"] or math.inf
    at_once = min(32, spec["channels"])
    bytes_limit = spec["mib_s"] * 1.048576 or math.inf
    flushed = (spec["write_us"] + spec["flush_us"]) * factor + BLOCK / spec["flush_mb_s"]
    return {
        "random read, one by one": spec["read_us"] * factor,
        "random write, one by one": spec["write_us"] * factor,
        "random reads, 32 at once": min(limit, at_once * 1e6 / spec["read_us"] / factor),
        "sequential read": min(spec["read_mb_s"], bytes_limit),
        "sequential write": min(spec["write_mb_s"], bytes_limit),
        "write and flush": 1e6 / flushed,
    }


@contextmanager
def playing(place: Path, model: DeviceModel | None) -> Iterator[Path]:
    """Yield a loop device with the times of a model."""
    image = place / "image"
    with image.open("wb") as file:
        file.truncate(SIZE_BYTES)
    with SlowDisk(image, place, model) as disk:
        words = ["losetup", "--direct-io=on", "--find", "--show", disk.path]
        device = subprocess.run(words, check=True, capture_output=True, text=True).stdout.strip()
        try:
            if model is not None:
                disk.play(Path(device))
            yield Path(device)
        finally:
            subprocess.run(["losetup", "--detach", device], check=True)


def measured(device: Path, figure: str, seconds: float) -> float:
    """Return one figure by fio, measured after the device has written everything out."""
    unit, options = FIGURES[figure]
    descriptor = os.open(device, os.O_RDONLY)
    os.fsync(descriptor)
    os.close(descriptor)
    words = ["fio", f"--name={figure}", f"--filename={device}", "--ioengine=libaio", "--direct=1"]
    words += ["--time_based", f"--runtime={seconds}", "--randrepeat=0", "--output-format=json"]
    words += [f"--{name}={value}" for name, value in options.items()]
    done = subprocess.run(words, check=True, capture_output=True, text=True)
    (job,) = json.loads(done.stdout)["jobs"]
    side = job["read"] if "read" in options["rw"] else job["write"]
    values = {"us": side["lat_ns"]["mean"] / 1e3, "MB/s": side["bw_bytes"] / 1e6}
    return float(values.get(unit, side["iops"]))


def table(rounds: int, seconds: float, names: list[str]) -> str:
    """Measure every figure in rounds and return rows of Markdown."""
    lines = ["| model | figure | unit | by its figures | by fio | ratio (range) |"]
    lines.append("|---|---|---|---|---|---|")
    place = Path(tempfile.mkdtemp(prefix="spoolscope-models-"))
    try:
        found: dict[tuple[str, str], list[float]] = {}
        for _ in range(rounds):
            for name in ("(no model)", *names):
                with playing(place, device_models().get(name)) as device:
                    for figure in FIGURES:
                        value = measured(device, figure, seconds)
                        found.setdefault((name, figure), []).append(value)
        for (name, figure), values in found.items():
            model = device_models().get(name)
            lines.append(_row(name, figure, values, expected(model) if model else {}))
    finally:
        shutil.rmtree(place)
    return "\n".join(lines)


def _row(name: str, figure: str, values: list[float], wanted: dict[str, float]) -> str:
    middle, unit = statistics.median(values), FIGURES[figure][0]
    if figure not in wanted:
        return f"| {name} | {figure} | {unit} | - | {middle:,.0f} | - |"
    want = wanted[figure]
    ratios = [value / want for value in values]
    spread = f"{middle / want:.2f} ({min(ratios):.2f} to {max(ratios):.2f})"
    return f"| {name} | {figure} | {unit} | {want:,.0f} | {middle:,.0f} | {spread} |"


HEAD = """# Device models

`spoolscope replay --device-model NAME` plays the times of a kind of disk over an image. This table
says how near the played times come to the figures of each model, on Linux {kernel}, {cpus} CPUs at
a load of {load:.1f}, {date}; made by `sudo .venv/bin/python analysis/benchmarks/device_models.py`
({rounds} rounds of {seconds:g} s of fio for each figure, all models in each round).

*By its figures* is computed from [devices.toml](../traces/python/spoolscope/traces/devices.toml)
alone; "-" where a figure follows from the queue or the cache. *(no model)* is the way of a request
through the loop device and FUSE: what is shorter than that cannot be played, and its time is taken
off the times of models without an arm. Seek distances are parts of the image, as if its filesystem
filled the whole disk.

"""


def main() -> None:
    """Measure and write the text."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*", default=list(device_models()))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=3)
    asked = parser.parse_args()
    load = os.getloadavg()[0]
    rows = table(asked.rounds, asked.seconds, asked.models)
    head = HEAD.format(
        kernel=platform.release(), cpus=os.cpu_count(), load=load, date=time.strftime("%Y-%m-%d"),
        rounds=asked.rounds, seconds=asked.seconds,
    )  # fmt: skip
    TEXT.write_text(f"{head}{rows}\n")
    print(rows)
    print(f"Wrote {TEXT}")


if __name__ == "__main__":
    main()
