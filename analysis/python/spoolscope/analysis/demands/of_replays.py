"""Metrics of the runs of a replay."""

import math
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from pathlib import Path

import numpy as np

from spoolscope.analysis.candidate_runs import Candidate
from spoolscope.analysis.causes import charged
from spoolscope.analysis.certificate import certificates
from spoolscope.analysis.compare import Comparison
from spoolscope.analysis.demands.decisions import Decision, Measured, decide
from spoolscope.analysis.demands.language import CAUSE, COUNT, MEAN, OVER, TIME, Demand, Metric
from spoolscope.analysis.demands.recorded import lack
from spoolscope.analysis.explain import explain
from spoolscope.analysis.guests import counts_instructions
from spoolscope.analysis.latency import supported
from spoolscope.analysis.lateness_effect import EXCUSED
from spoolscope.analysis.metrics import compared_calls, has_all
from spoolscope.analysis.outcomes import Run
from spoolscope.analysis.services import LOOP_MAJOR
from spoolscope.analysis.stats import MINIMUM_ROUNDS, paired, t_quantile
from spoolscope.traces.trace import Trace

_REQUESTS = f"block_ios WHERE (parent_dev IS NULL OR parent_dev >> 20 != {LOOP_MAJOR})"
_COUNTS = {
    "commits": "SELECT count(*) FROM commits",
    "requests": f"SELECT count(*) FROM {_REQUESTS}",
    "flushes": f"SELECT count(*) FROM {_REQUESTS} AND op = 'flush'",
    "writes": f"SELECT count(*) FROM {_REQUESTS} AND op = 'write'",
    "reads": f"SELECT count(*) FROM {_REQUESTS} AND op = 'read'",
    "written_bytes": f"SELECT coalesce(sum(bytes), 0) FROM {_REQUESTS} AND op = 'write'",
    "read_bytes": f"SELECT coalesce(sum(bytes), 0) FROM {_REQUESTS} AND op = 'read'",
}
AS_RECORDED = "calls of a replay are those of the recording"

Value = Callable[[Run], float | None]


def decide_replays(found: Comparison, demand: Demand) -> list[Decision]:
    """Decide an expression for each candidate against the reference."""
    value, why = _value(found, demand.metric)
    decisions = []
    for name, candidate in found.candidates.items():
        if name == found.reference and demand.relative:
            continue
        lacking = why or _lack(found, demand, name)
        if value is None or lacking:
            measured = Measured(None, why=lacking)
        else:
            measured = _measured(found, demand, name, value)
        doubt = _doubt(candidate, *([found.candidates[found.reference]] if demand.relative else []))
        doubt = doubt or _doubt_of_pair(found, demand, name)
        decisions.append(decide(demand, name, measured, doubt))
    return decisions


def _doubt(*candidates: Candidate) -> str:
    weak = [candidate.name for candidate in candidates if not candidate.fidelity.ok]
    return f"runs of {' and '.join(weak)} were not true to the recording" if weak else ""


def _doubt_of_pair(found: Comparison, demand: Demand, name: str) -> str:
    """Return why the verdict on two candidates decides nothing, "" if it does."""
    pair = next((pair for pair in found.pairs if pair.candidate == name), None)
    if pair is None or not demand.relative or demand.metric.kind == COUNT:
        return ""
    if pair.chance:
        return "as much of it was waiting for CPUs that programs outside the replay had"
    late = any(
        one.missed & frozenset(EXCUSED)
        for one in certificates(found.replay.runs)
        if one.candidate in (name, found.reference)
    )
    if late and pair.lateness and not pair.lateness.holds:
        return "calls that the machine made late decide it"
    return ""


def _lack(found: Comparison, demand: Demand, name: str) -> str:
    """Return why the recording of a run cannot hold the metric, "" if all can."""
    if demand.metric.kind not in (CAUSE, COUNT):
        return ""  # the replayer's own clock: no recording need be opened
    chosen = {name, found.reference} if demand.relative else {name}
    places = [run.trace for run in found.replay.runs if run.candidate in chosen]
    return next(filter(None, (lack(Trace.open(p), demand.metric) for p in places if p)), "")


def _measured(found: Comparison, demand: Demand, name: str, value: Value) -> Measured:
    if not demand.relative:
        runs = [run for run in found.replay.runs if run.candidate == name]
        return _by_itself([value(run) for run in runs])
    matched = found.replay.matched(name, found.reference)
    runs = [run for run, _ in matched]
    ours = [value(run) for run in runs]
    theirs = [value(run) for _, run in matched]
    if any(v is None for v in (*ours, *theirs)) or not runs:
        return Measured(None, why="a run has too few such calls, or was not recorded")
    numbers, others = [v or 0.0 for v in ours], [v or 0.0 for v in theirs]
    if not any(numbers) and not any(others):
        return Measured(1.0, 1.0, 1.0) if len(runs) >= MINIMUM_ROUNDS else _few(1.0, len(runs))
    estimate = paired(numbers, others)
    if estimate.n < len(runs):
        return Measured(None, why="it did not happen in each run")
    if estimate.n < MINIMUM_ROUNDS:
        return _few(estimate.ratio, estimate.n)
    return Measured(estimate.ratio, estimate.low, estimate.high)


def _by_itself(values: Sequence[float | None]) -> Measured:
    """Return the mean of a candidate's runs with its interval; a value is never below 0."""
    numbers = [value for value in values if value is not None]
    if len(numbers) < len(values) or not numbers:
        return Measured(None, why="a run has too few such calls, or was not recorded")
    if all(numbers):
        estimate = paired(numbers, [1.0] * len(numbers))
        if estimate.n < MINIMUM_ROUNDS:
            return _few(estimate.ratio, estimate.n)
        return Measured(estimate.ratio, estimate.low, estimate.high)
    mean = float(np.mean(numbers))  # a value of 0 has no logarithm
    if len(numbers) < MINIMUM_ROUNDS:
        return _few(mean, len(numbers))
    spread = float(np.std(numbers, ddof=1)) / math.sqrt(len(numbers))
    half = t_quantile(len(numbers) - 1) * spread
    return Measured(mean, max(0.0, mean - half), mean + half)


def _few(value: float, rounds: int) -> Measured:
    why = f"there are {rounds} rounds; it needs {MINIMUM_ROUNDS} at least, better 10"
    return Measured(None if math.isnan(value) else value, why=why)


def _value(found: Comparison, metric: Metric) -> tuple[Value | None, str]:
    """Return the function that measures a run; or None, and the reason, if there is none."""
    if metric.kind == COUNT:
        return _count(found, metric)
    if metric.kind == CAUSE:
        return cached(lambda run: _of_cause(run, metric.name)), ""
    if any(counts_instructions(run.result) for run in found.replay.runs):
        return None, "these runs count instructions, which only 'compare' itself holds together"
    calls = compared_calls(found.replay)
    if metric.calls:
        calls = calls[np.isin(found.replay.syscalls[calls], metric.calls)]
    if not len(calls):
        return None, "no compared call is one of these (file locking is not compared)"

    def of_run(run: Run) -> float | None:
        return _of_lengths(run.latency_ns[calls], metric) if has_all(run, calls) else None

    return cached(of_run), ""


def _of_lengths(ns: np.ndarray, metric: Metric) -> float | None:
    if metric.kind == TIME:
        return float(ns.sum())
    if metric.kind == MEAN:
        return float(ns.mean())
    if metric.kind == OVER:
        return float((ns > metric.over_ns).mean())
    is_supported = supported(len(ns), metric.q) and supported(len(ns), 1 - metric.q)
    return float(np.quantile(ns, metric.q)) if is_supported else None


def _of_cause(run: Run, cause: str) -> float | None:
    return None if run.trace is None else float(_causes(run.trace).get(cause, 0))


@cache
def _causes(trace: Path) -> dict[str, float]:
    """Return the causes of a run, explained once for all expressions."""
    return charged(explain(trace).causes)


def _count(found: Comparison, metric: Metric) -> tuple[Value | None, str]:
    if metric.name not in _COUNTS:
        return None, AS_RECORDED
    if metric.per == "delivery":
        return None, "deliveries are those of the recording: count per second or call"
    calls = max(found.n_calls, 1)

    def measure(run: Run) -> float | None:
        if run.trace is None:
            return None
        counted = _counted(run.trace, metric.name)
        per = calls if metric.per == "call" else (run.result.makespan_ns or 0) / 1e9
        return counted / per if per else None

    return cached(measure), ""


def _counted(directory: Path, name: str) -> float:
    with Trace.open(directory).connect() as con:
        row: Iterable[float] = con.execute(_COUNTS[name]).fetchone() or (0,)
        return float(next(iter(row)))


def cached(measure: Value) -> Value:
    """Return a function that measures each run once."""
    known: dict[int, float | None] = {}

    def once(run: Run) -> float | None:
        if id(run) not in known:
            known[id(run)] = measure(run)
        return known[id(run)]

    return once
