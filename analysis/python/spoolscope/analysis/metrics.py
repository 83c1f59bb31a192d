"""Metrics for comparing candidates: two primary ones, fixed beforehand, and secondary ones.

All are computed over the same calls on every candidate: those that every run executed, without
file locking. A candidate that failed to execute its calls has no metrics, if two others have.

``total_ns`` is the time in calls. Near a candidate's limit it is not enough: work that arrives
while its process is still busy waits, which is lateness and not time in calls. So ``due_to_end_ns``
measures calls that begin a piece of work, after a pause of their thread in the recording, from when
they were due to their end, and calls that follow at once from their issue. (A late piece of work is
late in all its calls: in the sample's replay on an ext4 near its limit, the sum from due to end
over all calls is 104 times the time in calls.) Lateness caused by the machine, and not by the
target, is in neither.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from spoolscope.analysis.fidelity import compared_runs
from spoolscope.analysis.latency import SYSCALL_CLASSES, supported
from spoolscope.analysis.outcomes import Replay, Run
from spoolscope.traces.calls import of_effect, of_kind

PRIMARY = "total_ns"
WAITING = "due_to_end_ns"
BLOCK_NS = 1_000_000_000
MAX_BLOCKS = 100


@dataclass(frozen=True)
class Metric:
    """A metric: its label, its unit ("ns" or "share"), and how it is computed.

    ``compute(latency_ns, select)`` gets the latencies of the common calls and a function that
    returns the latencies of the named calls among them; None means too few events.
    """

    label: str
    unit: str
    compute: Callable[[np.ndarray, Callable[..., np.ndarray]], float | None]


def _mean(values: np.ndarray) -> float | None:
    return float(values.mean()) if len(values) else None


def _p99(values: np.ndarray) -> float | None:
    return float(np.percentile(values, 99)) if supported(len(values), 0.99) else None


METRICS: dict[str, Metric] = {
    PRIMARY: Metric("time in calls", "ns", lambda all_, _: float(all_.sum())),
    WAITING: Metric("time from due to end", "ns", lambda all_, _: float(all_.sum())),
    "sync_mean_ns": Metric(
        "mean of fsync and fdatasync", "ns", lambda _, of: _mean(of("fsync", "fdatasync"))
    ),
    "open_p99_ns": Metric("p99 of open", "ns", lambda _, of: _p99(of(*SYSCALL_CLASSES["open"]))),
    "rename_p99_ns": Metric(
        "p99 of rename", "ns", lambda _, of: _p99(of(*SYSCALL_CLASSES["rename"]))
    ),
    "link_p99_ns": Metric("p99 of link", "ns", lambda _, of: _p99(of(*of_effect("links")))),
    "unlink_p99_ns": Metric("p99 of unlink", "ns", lambda _, of: _p99(of(*of_kind("unlink")))),
    "over_10ms_share": Metric(
        "calls over 10 ms", "share", lambda all_, _: float((all_ > 10_000_000).mean())
    ),
    "over_100ms_share": Metric(
        "calls over 100 ms", "share", lambda all_, _: float((all_ > 100_000_000).mean())
    ),
}
"""The primary metrics first. Quantiles are secondary on purpose: at n = 10 a p99 is known to
about a third, the sum to a sixth."""


def compared_calls(replay: Replay) -> np.ndarray:
    """Return the calls that candidates are compared by: executed by all, without file locking.

    A wait for a file lock is a wait for another program, whose work counts in its own calls.
    """
    calls = common_calls(compared_runs(replay))
    compared: np.ndarray = calls[~np.isin(replay.syscalls[calls], SYSCALL_CLASSES["lock"])]
    return compared


def common_calls(runs: Sequence[Run]) -> np.ndarray:
    """Return the rows of the trace that every run executed."""
    size = min(len(run.latency_ns) for run in runs)
    executed = np.ones(size, bool)
    for run in runs:
        executed &= run.latency_ns[:size] >= 0
    return np.flatnonzero(executed)


def has_all(run: Run, calls: np.ndarray) -> bool:
    """Return whether a run executed all of some calls; False for no calls."""
    return len(calls) > 0 and bool((run.latency_ns[calls] >= 0).all())


def measure(replay: Replay, run: Run, calls: np.ndarray) -> dict[str, float | None]:
    """Compute every metric of a run over the given calls; all None if it lacks one of them."""
    latency, names = run.latency_ns[calls], replay.syscalls[calls]
    families: dict[tuple[str, ...], np.ndarray] = {}

    def of(*wanted: str) -> np.ndarray:
        if wanted not in families:
            families[wanted] = latency[np.isin(names, wanted)]
        return families[wanted]

    if not has_all(run, calls):
        return dict.fromkeys(METRICS)
    found = {name: metric.compute(latency, of) for name, metric in METRICS.items()}
    return found | {WAITING: _sum(due_to_end(replay, run, calls))}


def due_to_end(replay: Replay, run: Run, calls: np.ndarray) -> np.ndarray | None:
    """Return the time of calls from when they were due, see above; None if no pace was kept."""
    if not len(run.late_ns) or not len(replay.begins_work):
        return None
    waits = np.where(replay.begins_work[calls], np.maximum(run.late_ns[calls], 0), 0)
    waited: np.ndarray = run.latency_ns[calls] + waits
    return waited


def _sum(values: np.ndarray | None) -> float | None:
    return None if values is None else float(values.sum())


def time_blocks(replay: Replay, calls: np.ndarray) -> np.ndarray:
    """Return for each call its time block: at least 1 s of the recording, at most 100 blocks."""
    starts = replay.ts_ns[calls]
    if not len(starts):
        return np.empty(0, np.int64)
    since = starts - starts.min()
    length = max(BLOCK_NS, -(-int(since.max() + 1) // MAX_BLOCKS))
    blocks: np.ndarray = since // length
    return blocks


def block_sums(ns: np.ndarray, blocks: np.ndarray) -> np.ndarray:
    """Return the times of calls added up by block."""
    sums: np.ndarray = np.bincount(blocks, weights=ns.astype(np.float64))
    return sums
