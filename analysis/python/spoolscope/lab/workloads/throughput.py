"""The throughput of a step over its time, as columns."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

PARTS = 10


def mb_per_s(samples: Sequence[Mapping[str, int]], parts: int = PARTS) -> list[float]:
    """Return MB read and written per second in equal parts of a step's time.

    Args:
        samples: ``at_ns``, ``read_bytes`` and ``written_bytes`` since the begin of the step.
        parts: Number of parts.
    """
    at = np.array([one["at_ns"] for one in samples], np.float64)
    moved = np.array([one["read_bytes"] + one["written_bytes"] for one in samples], np.float64)
    if len(at) < 2 or at[-1] <= at[0]:
        return [0.0] * parts
    borders = np.linspace(at[0], at[-1], parts + 1)
    between = np.diff(np.interp(borders, at, moved))
    found: list[float] = (between / np.diff(borders) * 1e3).tolist()
    return found


def by_step(rows: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, list[float]]]:
    """Return {step: {candidate: MB/s in parts of its time}}, means over the rounds."""
    found: dict[str, dict[str, list[list[float]]]] = {}
    for row in rows:
        for step, samples in row.get("throughput", {}).items():
            of_step = found.setdefault(step, {})
            of_step.setdefault(str(row["candidate"]), []).append(mb_per_s(samples))
    return {
        step: {name: np.mean(runs, axis=0).tolist() for name, runs in of_step.items()}
        for step, of_step in found.items()
    }
