"""The life of a candidate's filesystem, from mkfs to the removal of all: time, CPU, writes."""

import os
import re
import resource
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from spoolscope.traces.filesystems import FILESYSTEMS
from spoolscope.traces.trace import Trace

SECTOR = 512
"""Bytes of a sector in /sys/block/*/stat, whatever the device's own is."""

KINDS = ("data", "metadata_awaited", "metadata_later")
"""Kinds of writes: metadata is REQ_META, awaited with REQ_SYNC (as journals and logs are)."""

SAMPLE_S = 0.1
POOLS = frozenset(kind.mounts for kind in FILESYSTEMS.values() if kind.release)
_KERNEL_THREADS = 2
"""Process id of the parent of all kernel threads."""


class Lifetime:
    """Costs of the steps of one filesystem's life, and what they wrote to its devices.

    Attributes:
        steps: {step: ns, cpu_ns, kernel_cpu_ns}: wall-clock time, CPU time of the programs that
            made the step, and CPU time that all kernel threads of the machine had meanwhile (a
            filesystem leaves work to these; None where they cannot be seen).
        device: {phase: written_bytes, read_bytes, writes, flushes, discarded_bytes}; flushes are
            None where the kernel counts those of a whole disk only.
        facts: Further facts: see ``as_dict``.
    """

    def __init__(self) -> None:
        self.steps: dict[str, dict[str, int | None]] = {}
        self.device: dict[str, dict[str, int | None]] = {}
        self.facts: dict[str, Any] = {}
        self._watched: list[_Device] = []

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Measure a step; a step that fails is not kept."""
        kernel, programs, began = kernel_threads_ns(), _programs_ns(), time.monotonic_ns()
        yield
        took = time.monotonic_ns() - began
        self.steps[name] = {
            "ns": took,
            "cpu_ns": _programs_ns() - programs,
            "kernel_cpu_ns": _gained(kernel, kernel_threads_ns()),
        }

    def watch(self, devices: Sequence[Path]) -> None:
        """Count from now on what is written to devices, which are held until ``count``.

        Without a holder a loop device, with its counters, would go with the mount.
        """
        self._watched = [_Device(path) for path in devices]

    def count(self, phase: str) -> None:
        """End the watch and add what was counted to a phase."""
        for one in self._watched:
            found = self.device.setdefault(phase, {})
            for name, value in one.end().items():
                before = found.get(name, 0)
                found[name] = None if value is None or before is None else before + value
        self.release()

    def release(self) -> None:
        """Close the watched devices, also those whose watch did not come to its end."""
        for one in self._watched:
            one.close()
        self._watched = []

    def capacity(self, when: str, mount: Path) -> None:
        """Keep the size of a filesystem, and the usable part of it, in bytes and files."""
        size = os.statvfs(mount)
        self.facts.setdefault("capacity", {})[when] = {
            "total_bytes": size.f_blocks * size.f_frsize,
            "available_bytes": size.f_bavail * size.f_frsize,
            "free_files": size.f_favail,
        }

    @contextmanager
    def dirty(self) -> Iterator[None]:
        """Keep the largest amount of dirty page cache of the machine meanwhile."""
        before = _dirty_bytes()
        peak, over = before, threading.Event()

        def watch() -> None:
            nonlocal peak
            while not over.wait(SAMPLE_S):
                peak = max(peak, _dirty_bytes())

        watcher = threading.Thread(target=watch, daemon=True)
        watcher.start()
        try:
            yield
        finally:
            over.set()
            watcher.join()
            peak = max(peak, _dirty_bytes())
            self.facts["dirty"] = {"before_bytes": before, "peak_bytes": peak}

    def by_kind(self, trace: Path, devices: Sequence[Path]) -> None:
        """Keep the bytes of each kind that a replay wrote, by the requests in its recording."""
        if not devices or not (trace / "meta.json").is_file():
            return
        if {spool["source"] for spool in Trace.open(trace).meta["spools"]} <= POOLS:
            self.left_out("written_while_recorded", "a recorder does not know the disks of a pool")
            return
        if parts := [path for path in devices if not _has_requests(path)]:
            # Requests are recorded for whole disks, and below md and device-mapper.
            self.left_out("written_while_recorded", f"{parts[0]} has no requests of its own")
            return
        numbers = [path.stat().st_rdev for path in devices]
        disks = [os.major(number) << 20 | os.minor(number) for number in numbers]
        written = dict.fromkeys(KINDS, 0)
        for part in Trace.open(trace).parts("block_ios", ["dev", "op", "bytes", "sync", "meta"]):
            of_it = pc.and_(pc.is_in(part["dev"], pa.array(disks)), pc.equal(part["op"], "write"))
            for row in part.filter(of_it).select(["bytes", "sync", "meta"]).to_pylist():
                waited = "awaited" if row["sync"] else "later"
                written[f"metadata_{waited}" if row["meta"] else "data"] += row["bytes"]
        self.facts["written_while_recorded"] = written

    def ran(self, commands: Sequence[dict[str, Any]]) -> None:
        """Keep commands with their full output."""
        self.facts.setdefault("commands", []).extend(commands)

    def left_out(self, step: str, why: str) -> None:
        """Keep the reason why a step was not made."""
        self.facts.setdefault("left_out", {})[step] = why

    def as_dict(self) -> dict[str, Any]:
        """Return it as ``run.json`` has it: ``steps``, ``device`` and all facts."""
        return {"steps": self.steps, "device": self.device, **self.facts}


def block_devices(mount: Path) -> list[Path]:
    """Return the block devices that a mounted filesystem lies on, as far as the mount names them.

    The list is empty if the filesystem has none.
    """
    words = ["findmnt", "--noheadings", "--output", "SOURCE", "--mountpoint", str(mount)]
    found = subprocess.run(words, capture_output=True, text=True, check=False).stdout.split()
    # A subvolume stands in brackets behind the device; of several mounts the last is on top.
    # An overlay, which has no device, is mounted over a filesystem that has one.
    devices = [Path(re.sub(r"\[.*\]$", "", name)) for name in found]
    return [path for path in devices if path.is_block_device()][-1:]


@dataclass
class Counters:
    """Counters of a device, see Documentation/block/stat.rst in the kernel's sources."""

    read_bytes: int
    writes: int
    written_bytes: int
    discarded_bytes: int
    flushes: int | None

    @classmethod
    def now(cls, device: Path) -> "Counters":
        """Read the counters of a device."""
        fields = [int(word) for word in (_in_sys(device) / "stat").read_text().split()]
        fields += [0] * (17 - len(fields))
        return cls(
            read_bytes=fields[2] * SECTOR,
            writes=fields[4],
            written_bytes=fields[6] * SECTOR,
            discarded_bytes=fields[13] * SECTOR,
            flushes=fields[15] if _has_requests(device) else None,
        )


class _Device:
    """A device whose counters are read when it is made and at the end."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._before = Counters.now(path)
        self._held = os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def end(self) -> dict[str, int | None]:
        after, before = vars(Counters.now(self._path)), vars(self._before)
        return {
            name: None if value is None else value - before[name] for name, value in after.items()
        }

    def close(self) -> None:
        os.close(self._held)


def _in_sys(device: Path) -> Path:
    # By its number: without udev a node of device-mapper has another name than in the kernel.
    number = device.stat().st_rdev
    return Path(f"/sys/dev/block/{os.major(number)}:{os.minor(number)}")


def _has_requests(device: Path) -> bool:
    place = _in_sys(device)
    of_others = ("partition", "dm", "md")
    return not any((place / name).exists() for name in of_others)


def _programs_ns() -> int:
    """Return the CPU time of all programs that were started and have ended."""
    spent = resource.getrusage(resource.RUSAGE_CHILDREN)
    return round((spent.ru_utime + spent.ru_stime) * 1e9)


def kernel_threads_ns() -> dict[int, int]:
    """Return the CPU time of each kernel thread that can be seen."""
    found = {}
    for place in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended meanwhile
            # Names of processes are bytes.
            parent = (place / "stat").read_text(errors="replace").rpartition(")")[2].split()[1]
            if int(parent) == _KERNEL_THREADS:
                found[int(place.name)] = int((place / "schedstat").read_text().split()[0])
    return found


def _gained(before: dict[int, int], after: dict[int, int]) -> int | None:
    """Return how much threads that exist at the end have gained; that of others is unknown."""
    gained = [max(ns - before.get(thread, 0), 0) for thread, ns in after.items()]
    return sum(gained) if gained else None


def _dirty_bytes() -> int:
    with Path("/proc/meminfo").open() as file:
        words = next(line for line in file if line.startswith("Dirty:")).split()
    return int(words[1]) * 1024
