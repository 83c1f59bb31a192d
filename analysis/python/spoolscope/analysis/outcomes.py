"""Read the output of a replay: its runs, and the latency of every call in each of them."""

import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from spoolscope.analysis.conditions import Conditions, check_alike
from spoolscope.analysis.guests import with_kernels
from spoolscope.traces.digests import check
from spoolscope.traces.errors import USAGE, SpoolscopeError
from spoolscope.traces.results import (
    DIVERGENCES_FILE,
    OUTCOMES_FILE,
    REPLAY_FILE,
    Divergences,
    ReplayResult,
    RunResult,
    damaged,
    read_divergences,
    read_replay_file,
)
from spoolscope.traces.trace import Trace

EXECUTED = ("same", "diverged", "of_filesystem")
NOT_MADE = "bad_fd"
PAUSE_NS = 1_000_000
"""A thread without a call for so long waited for work: true before 1 of 67 calls of the sample."""


def _nothing() -> np.ndarray:
    return np.zeros(0, np.int64)


@dataclass(frozen=True)
class Run:
    """One replay run.

    Attributes:
        candidate: Name of the candidate; block is the pair (replay, round) by which runs are
            paired.
        result: Its run.json.
        directory: Directory of its files.
        latency_ns: By row of the original trace's syscalls, -1 where it was not executed; 0 where
            it was left out on purpose. With several times the users the rows of each copy follow
            those of the recording.
        tids: Threads that issued the calls, by the same rows.
        late_ns: Lateness of each call because its thread, or others that it depends on, took longer
            than recorded; late_by_machine_ns because the machine did not run it in time. Empty if
            no pace was kept, or by an older replayer.
        divergences: Its divergences.json: first causes, skipped and listed calls.
    """

    candidate: str
    block: tuple[int, int]
    result: RunResult
    directory: Path
    latency_ns: np.ndarray = field(repr=False)
    tids: np.ndarray = field(repr=False)
    divergences: Divergences
    late_ns: np.ndarray = field(repr=False, default_factory=_nothing)
    late_by_machine_ns: np.ndarray = field(repr=False, default_factory=_nothing)

    @property
    def trace(self) -> Path | None:
        """The recorded trace of the run, if it was recorded."""
        path = self.directory / "trace"
        return path if (path / "meta.json").is_file() else None


@dataclass(frozen=True)
class Replay:
    """The runs of one or more replays of the same trace.

    Attributes:
        outputs: Their directories.
        header: replay.json of the first.
        trace: The replayed trace, None if it is gone.
        syscalls: Name of every call, repeated for each copy of the users in the run with the most;
            comms its process; ts_ns its start; begins_work true if its thread had paused for
            ``PAUSE_NS`` before; recorded_ns its recorded length.
        unmade: Runs that are missing as a replay was interrupted.
    """

    outputs: list[Path]
    header: ReplayResult
    trace: Trace | None
    syscalls: np.ndarray = field(repr=False)
    comms: np.ndarray = field(repr=False)
    ts_ns: np.ndarray = field(repr=False)
    runs: list[Run]
    begins_work: np.ndarray = field(repr=False, default_factory=_nothing)
    recorded_ns: np.ndarray = field(repr=False, default_factory=_nothing)
    unmade: int = 0

    def recorded_comms(self, run: Run) -> dict[int, str]:
        """Return the recorded process name for each thread of a run."""
        if self.trace is None:
            return {}
        made = np.flatnonzero(run.tids >= 0)
        tids, first = np.unique(run.tids[made], return_index=True)
        return dict(zip(tids.tolist(), self.comms[made[first]].tolist(), strict=True))

    @property
    def without_trace(self) -> str:
        """One sentence for a replay whose trace is not at hand."""
        name = Path(self.header.trace).name
        return (
            f"the replayed trace {name} is not at hand: calls have no names, and processes "
            "neither; --trace DIR says where it is"
        )

    @property
    def what_if(self) -> str:
        """Label of what all runs left out on purpose; "" if nothing, or if runs differ."""
        labels = {run.result.what_if.label if run.result.what_if else "" for run in self.runs}
        return labels.pop() if len(labels) == 1 else ""

    @property
    def conditions(self) -> Conditions:
        """The conditions of all its runs."""
        return Conditions.of(self.header)

    @property
    def candidates(self) -> list[str]:
        """Names of the candidates in order of appearance."""
        return list(dict.fromkeys(run.candidate for run in self.runs))

    def matched(self, candidate: str, reference: str) -> list[tuple[Run, Run]]:
        """Pair runs by replay and round; if there are no such pairs, in their order."""
        by_block = {(run.candidate, run.block): run for run in self.runs}
        blocks = dict.fromkeys(run.block for run in self.runs)
        both = [
            (by_block[candidate, block], by_block[reference, block])
            for block in blocks
            if (candidate, block) in by_block and (reference, block) in by_block
        ]
        ours, theirs = (
            [run for run in self.runs if run.candidate == name] for name in (candidate, reference)
        )
        return both or list(zip(ours, theirs, strict=False))

    def is_whole(self, block: tuple[int, int]) -> bool:
        """Return whether all candidates of a replay have a run in one of its rounds."""
        of_replay = {run.candidate for run in self.runs if run.block[0] == block[0]}
        return of_replay == {run.candidate for run in self.runs if run.block == block}

    def at_once(self, *candidates: str) -> bool:
        """Return whether some candidates were replayed in turns: in rounds of one replay."""
        blocks = [{run.block for run in self.runs if run.candidate == one} for one in candidates]
        return bool(set.intersection(*blocks))


def is_replay(path: Path) -> bool:
    """Return True if a directory is the output of a replay."""
    return (path / REPLAY_FILE).is_file()


def read_replay(outputs: Sequence[Path], trace: Path | None = None) -> Replay:
    """Read one or more outputs of ``spoolscope replay``.

    Args:
        outputs: Their directories.
        trace: The replayed trace, if it is no longer where it was beside the first of them.

    Raises:
        SpoolscopeError: not a replay, without runs, damaged, or replays of different traces
            or made under different conditions; or ``trace`` is not the one that was replayed.
    """
    headers = _with_distinct_names([_header(path) for path in outputs])
    _check_one_trace(outputs, headers)
    check_alike(outputs, headers)
    original = _given(trace, headers[0]) if trace else _found(headers[0], outputs[0])
    names, comms, starts, begins, took = _calls(original)
    runs = [
        _run(path, number, row, names)
        for number, (path, header) in enumerate(zip(outputs, headers, strict=True))
        for row in header.runs
    ]
    unmade = sum(len(header.order or header.runs) for header in headers) - len(runs)
    largest = max(runs, key=lambda run: len(run.latency_ns))
    if not len(names):
        size = len(largest.latency_ns)
        names, starts = np.full(size, "call", dtype=object), np.zeros(size, np.int64)
        outs = list(outputs)
        return Replay(outs, headers[0], original, names, comms, starts, runs, unmade=unmade)
    phases = _phases_ns(largest.result)
    starts = np.concatenate([starts + late for late in phases])
    of_all = (np.tile(values, len(phases)) for values in (names, comms, begins, took))
    names, comms, begins, took = of_all
    known = (names, comms, starts, runs, begins, took, unmade)
    return Replay(list(outputs), headers[0], original, *known)


def _phases_ns(result: RunResult) -> list[int]:
    """Return the start time of each user copy in a run; the first is the recording itself, at 0."""
    scale = result.what_if.scale if result.what_if else None
    return [0, *scale.phases_ns] if scale else [0]


def _header(path: Path) -> ReplayResult:
    if not is_replay(path):
        raise SpoolscopeError(
            f"{path} is not a replay (it has no {REPLAY_FILE})",
            remedy="give the directory that 'spoolscope replay -o' wrote",
            exit_code=USAGE,
        )
    header = read_replay_file(path)
    if not header.runs:
        raise SpoolscopeError(f"replay {path} has no finished run", remedy="replay again")
    return header


def _with_distinct_names(headers: Sequence[ReplayResult]) -> list[ReplayResult]:
    """Return the replays with distinct names for distinct candidates.

    The names get what a run left out on purpose, unless all runs left out the same, and its kernel.
    """
    runs = [run for header in headers for run in header.runs]
    if len({run.what_if.label if run.what_if else None for run in runs}) > 1:
        runs = [_with_label(run) for run in runs]
    named = iter(with_kernels(runs))
    return [replace(header, runs=[next(named) for _ in header.runs]) for header in headers]


def _with_label(run: RunResult) -> RunResult:
    if run.what_if is None:
        return run
    return replace(run, candidate=f"{run.candidate} {run.what_if.label}")


def _check_one_trace(outputs: Sequence[Path], headers: Sequence[ReplayResult]) -> None:
    """Refuse replays of different traces, by the traces' content, in older replays by path."""
    known = [header.trace_identity for header in headers]
    given = zip(outputs, headers, strict=True)
    places = [os.path.realpath(path / header.trace) for path, header in given]
    alike = len(set(filter(None, known))) <= 1
    same = alike and (all(known) or len(set(places)) == 1)
    if not same:
        raise SpoolscopeError(
            f"the replays are of different traces: {', '.join(sorted(set(places)))}",
            remedy="compare replays of one trace",
            exit_code=USAGE,
        )


def _given(trace: Path, header: ReplayResult) -> Trace:
    opened = Trace.open(trace)
    if not _is_replayed(opened, header):
        raise SpoolscopeError(
            f"{trace} is not the trace that was replayed, which was called "
            f"{Path(header.trace).name}",
            remedy="give another --trace, or none",
            exit_code=USAGE,
        )
    return opened


def _found(header: ReplayResult, output: Path) -> Trace | None:
    """Return the replayed trace if it is still at its place relative to the replay."""
    given = Path(header.trace)
    for path in (output / given, output.absolute().parent / given.name):
        try:
            trace = Trace.open(_short(path))
        except (SpoolscopeError, OSError):  # missing, or not readable for this user
            continue
        if _is_replayed(trace, header):
            return trace
    return None


def _short(path: Path) -> Path:
    """Return a normalised path, relative to the working directory if it lies below that."""
    real = Path(os.path.realpath(path))
    here = Path.cwd()
    return real.relative_to(here) if real.is_relative_to(here) else real


def _is_replayed(trace: Trace, header: ReplayResult) -> bool:
    """Return True if a trace is the replayed one, or the replay is too old to know."""
    return header.trace_identity in (None, trace.identity)


def _calls(trace: Trace | None) -> tuple[np.ndarray, ...]:
    """Return call name, process name, start, "follows a pause" and length of each call.

    Without a trace the arrays are empty.
    """
    if trace is None:
        nothing = np.empty(0, dtype=object)
        return nothing, nothing, _nothing(), np.empty(0, np.bool_), _nothing()
    table = trace.table("syscalls", ["syscall", "comm", "ts_ns", "dur_ns", "tid"])
    names, comms = (
        table.column(name).cast(pa.string()).to_numpy(zero_copy_only=False)
        for name in ("syscall", "comm")
    )
    starts, took, tids = (table.column(c).to_numpy() for c in ("ts_ns", "dur_ns", "tid"))
    order = np.lexsort((starts, tids))
    before, after = order[:-1], order[1:]
    pauses = starts[after] - (starts + took)[before] >= PAUSE_NS
    begins = np.ones(len(starts), np.bool_)
    begins[after] = pauses | (tids[after] != tids[before])
    return names, comms, starts, begins, took


def _run(output: Path, number: int, result: RunResult, names: np.ndarray) -> Run:
    directory = _directory(output, result)
    try:
        users = len(_phases_ns(result))
        for name, digest in result.digests.items():
            check(directory / name, digest)
        latency, tids, *late = _latency(directory / OUTCOMES_FILE, len(names), users)
        if result.what_if:  # a left-out call cost nothing
            gone = np.tile(np.isin(names, list(result.what_if.left_out)), users)
            latency[: len(gone)][gone & (latency[: len(gone)] < 0)] = 0
    except (OSError, ValueError, TypeError, KeyError, pa.ArrowException) as error:
        raise damaged(directory, error) from None
    known = (directory / DIVERGENCES_FILE).is_file()
    listed = read_divergences(directory) if known else Divergences(roots=[])
    block = (number, result.round)
    return Run(result.candidate, block, result, directory, latency, tids, listed, *late)


def _directory(output: Path, result: RunResult) -> Path:
    """Return a run's directory, which lies in the output even if that was moved."""
    by_label = output / Path(result.run).name
    if (by_label / OUTCOMES_FILE).is_file():
        return by_label
    return output / f"{result.candidate}-r{result.round}"


_LATE = ("late_by_target_ns", "late_by_machine_ns")


def _latency(file: Path, n_calls: int, users: int) -> tuple[np.ndarray, ...]:
    """Return latency and issuing thread by call, -1 where no real call was made.

    The next two are lateness by the target and by the machine, empty if no pace was kept.
    """
    kept = set(pq.read_schema(file).names)
    columns = ["call", "issue_ns", "end_ns", "verdict", "reason", "tid"]
    columns += [name for name in _LATE if name in kept] + ["copy"] * (users > 1)
    table = pq.read_table(file, columns=columns)
    verdict, reason = (table.column(name).cast(pa.string()) for name in ("verdict", "reason"))
    made = pc.is_in(verdict, value_set=pa.array(EXECUTED))
    # A call on a descriptor that this replay never opened gave the kernel nothing to do.
    made = pc.and_(made, pc.not_equal(reason, NOT_MADE))
    table = table.filter(pc.and_(made, pc.is_valid(table.column("call"))))
    calls = table.column("call").to_numpy()
    n_calls = n_calls or int(calls.max(initial=-1)) + 1
    if users > 1:
        calls = calls + n_calls * table.column("copy").to_numpy().astype(np.int64)
    values = {"latency": pc.subtract(table.column("end_ns"), table.column("issue_ns"))}
    values["tid"] = table.column("tid")
    timed = [name for name in _LATE if name in kept and not table.column(name).null_count]
    values |= {name: table.column(name) for name in timed if len(calls)}
    found = {}
    for name, column in values.items():
        found[name] = np.full(n_calls * users, -1, np.int64)
        found[name][calls] = column.to_numpy()
    return tuple(found.get(name, _nothing()) for name in ("latency", "tid", *_LATE))
