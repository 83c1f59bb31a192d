"""The life of each candidate's filesystem over its runs: medians, ranges and numbers of runs.

These are measured beside the calls and carry no verdict.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median

from spoolscope.analysis.outcomes import Run
from spoolscope.analysis.wording import duration, size
from spoolscope.traces.results_life import Life


@dataclass(frozen=True)
class Spread:
    """A number over the runs that have it: median, least, largest, and number of runs."""

    median: float
    low: float
    high: float
    n: int


@dataclass(frozen=True)
class Measure:
    """One measure of a life: label, unit ("ns", "bytes" or "times"), and its place in run.json."""

    label: str
    unit: str
    of: Callable[[Life], float | None]

    def shown(self, value: float | None) -> str:
        """Return a value with its unit, "-" for None."""
        if value is None:
            return "-"
        if self.unit == "times":
            return f"{value:,.{0 if value >= 100 else 1}f} x"
        return duration(value) if self.unit == "ns" else size(value)


def _step(name: str, *parts: str) -> Callable[[Life], float | None]:
    """Return a function that adds up parts of a step, to None if one is unknown."""

    def read(life: Life) -> float | None:
        step = life.steps.get(name)
        found: list[int | None] = [getattr(step, part, None) for part in parts]
        known = [ns for ns in found if ns is not None]
        return float(sum(known)) if len(known) == len(parts) else None

    return read


def _capacity(when: str, part: str) -> Callable[[Life], float | None]:
    def read(life: Life) -> float | None:
        known = life.capacity.get(when)
        return float(getattr(known, part)) if known else None

    return read


def _written(life: Life, step: str = "replay") -> float | None:
    use = life.device.get(step)
    return None if use is None or use.written_bytes is None else float(use.written_bytes)


def _by_calls(life: Life, step: str = "replay") -> float | None:
    known = life.mail_bytes.get(step)
    return None if known is None else float(known)


def _amplification(step: str) -> Callable[[Life], float | None]:
    def read(life: Life) -> float | None:
        ours, theirs = _written(life, step), _by_calls(life, step)
        return ours / theirs if ours is not None and theirs else None

    return read


def _kind(name: str) -> Callable[[Life], float | None]:
    """Return a function for the bytes of a kind that were written while the run was recorded."""

    def read(life: Life) -> float | None:
        known = (life.written_while_recorded or {}).get(name)
        return None if known is None else float(known)

    return read


def _dirty(life: Life) -> float | None:
    return None if life.dirty is None else float(life.dirty.peak_bytes)


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
    "total_bytes": Measure("size", "bytes", _capacity("after_mkfs", "total_bytes")),
    "usable_bytes": Measure("usable, new", "bytes", _capacity("after_mkfs", "available_bytes")),
    "usable_emptied_bytes": Measure(
        "usable, emptied", "bytes", _capacity("after_removal", "available_bytes")
    ),
    "fill_writes": Measure("writes, fill", "times", _amplification("fill")),
    "replay_writes": Measure("writes, replay", "times", _amplification("replay")),
    "mail_bytes": Measure("by calls", "bytes", _by_calls),
    "written_bytes": Measure("to device", "bytes", _written),
    "data_bytes": Measure("data", "bytes", _kind("data")),
    "metadata_awaited_bytes": Measure("meta, awaited", "bytes", _kind("metadata_awaited")),
    "metadata_later_bytes": Measure("meta, later", "bytes", _kind("metadata_later")),
    "dirty_bytes": Measure("dirty", "bytes", _dirty),
}


def lives(runs: Sequence[Run]) -> dict[str, Spread]:
    """Return the known measures of these runs, by the keys of ``MEASURES``."""
    found = {}
    for key, measure in MEASURES.items():
        measured = [measure.of(run.result.life) for run in runs if run.result.life]
        known = [value for value in measured if value is not None]
        if known:
            found[key] = Spread(median(known), min(known), max(known), len(known))
    return found


def unclean(runs: Sequence[Run]) -> str | None:
    """Return a sentence that names the damage found in filesystems; None if there was none."""
    checks = [run.result.life.check for run in runs if run.result.life]
    bad = [check for check in checks if check and not check.clean]
    if not bad:
        return None
    said = f": {bad[0].said[-1].strip()}" if bad[0].said else ""
    made = sum(check is not None for check in checks)
    return f"{bad[0].words} found errors after {len(bad)} of {made} runs{said}"
