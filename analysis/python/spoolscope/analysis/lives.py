"""The life of each candidate's filesystem over its runs: medians, from where to where, how often.

These are measured beside the calls and carry no verdict.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from spoolscope.analysis.outcomes import Run
from spoolscope.analysis.wording import duration, size

Life = Mapping[str, Any]


@dataclass(frozen=True)
class Spread:
    """A number over the runs that have it: its median, the least and the largest, and how many."""

    median: float
    low: float
    high: float
    n: int


@dataclass(frozen=True)
class Measure:
    """One measure of a life: label, unit ("ns", "bytes" or "times"), and where run.json has it."""

    label: str
    unit: str
    of: Callable[[Life], float | None]

    def shown(self, value: float | None) -> str:
        """Return a value as people read it, "-" for None."""
        if value is None:
            return "-"
        if self.unit == "times":
            return f"{value:,.{0 if value >= 100 else 1}f} x"
        return duration(value) if self.unit == "ns" else size(value)


def _step(name: str, *parts: str) -> Callable[[Life], float | None]:
    """Return what adds up parts of a step; None if one is not known."""

    def read(life: Life) -> float | None:
        found = [life.get("steps", {}).get(name, {}).get(part) for part in parts]
        return None if None in found else float(sum(found))

    return read


def _at(*path: str) -> Callable[[Life], float | None]:
    def read(life: Life) -> float | None:
        found: Any = life
        for name in path:
            found = found.get(name) if isinstance(found, Mapping) else None
        return None if found is None else float(found)

    return read


def _amplification(phase: str) -> Callable[[Life], float | None]:
    written, mail = _at("device", phase, "written_bytes"), _at("mail_bytes", phase)

    def read(life: Life) -> float | None:
        ours, theirs = written(life), mail(life)
        return ours / theirs if ours is not None and theirs else None

    return read


STEPS = {
    "mkfs": "mkfs",
    "mount": "mount, new",
    "fill": "fill",
    "mount_filled": "mount, filled",
    "umount": "umount, used",
    "check": "check",
    "remove": "remove all",
}
MEASURES = {
    **{f"{key}_ns": Measure(label, "ns", _step(key, "ns")) for key, label in STEPS.items()},
    **{
        f"{key}_cpu_ns": Measure(f"{label}: CPU", "ns", _step(key, "cpu_ns", "kernel_cpu_ns"))
        for key, label in STEPS.items()
    },
    "total_bytes": Measure("size", "bytes", _at("capacity", "after_mkfs", "total_bytes")),
    "usable_bytes": Measure(
        "usable, new", "bytes", _at("capacity", "after_mkfs", "available_bytes")
    ),
    "usable_emptied_bytes": Measure(
        "usable, emptied", "bytes", _at("capacity", "after_removal", "available_bytes")
    ),
    "fill_writes": Measure("writes, fill", "times", _amplification("fill")),
    "replay_writes": Measure("writes, replay", "times", _amplification("replay")),
    "mail_bytes": Measure("by calls", "bytes", _at("mail_bytes", "replay")),
    "written_bytes": Measure("to device", "bytes", _at("device", "replay", "written_bytes")),
    "data_bytes": Measure("data", "bytes", _at("written_while_recorded", "data")),
    "metadata_awaited_bytes": Measure(
        "meta, awaited", "bytes", _at("written_while_recorded", "metadata_awaited")
    ),
    "metadata_later_bytes": Measure(
        "meta, later", "bytes", _at("written_while_recorded", "metadata_later")
    ),
    "dirty_bytes": Measure("dirty", "bytes", _at("dirty", "peak_bytes")),
}


def lives(runs: Sequence[Run]) -> dict[str, Spread]:
    """Return what is known of the lives in these runs, by the keys of ``MEASURES``."""
    found = {}
    for key, measure in MEASURES.items():
        told = [measure.of(run.row.get("life") or {}) for run in runs]
        known = [value for value in told if value is not None]
        if known:
            found[key] = Spread(median(known), min(known), max(known), len(known))
    return found


def unclean(runs: Sequence[Run]) -> str | None:
    """Say in a sentence that filesystems were found damaged, None if they were not."""
    checks = [(run.row.get("life") or {}).get("check") for run in runs]
    bad = [check for check in checks if check and not check["clean"]]
    if not bad:
        return None
    said = f": {bad[0]['said'][-1].strip()}" if bad[0]["said"] else ""
    made = sum(check is not None for check in checks)
    return f"{bad[0]['words']} found errors after {len(bad)} of {made} runs{said}"
