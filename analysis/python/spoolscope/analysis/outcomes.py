"""Read the output of a replay: its runs, and the latency of every call in each of them."""

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from spoolscope.analysis.conditions import Conditions, check_alike
from spoolscope.analysis.guests import tell_kernels_apart
from spoolscope.traces.digests import check, check_sealed
from spoolscope.traces.errors import USAGE, SpoolscopeError
from spoolscope.traces.files import regular
from spoolscope.traces.trace import Trace

REPLAY_FILE = "replay.json"
EXECUTED = ("same", "diverged", "of_filesystem")
NOT_MADE = "bad_fd"
PAUSE_NS = 1_000_000
"""A thread that made no call for so long waited for work: one of 67 calls of the sample did."""


def _nothing() -> np.ndarray:
    return np.zeros(0, np.int64)


@dataclass(frozen=True)
class Run:
    """One replay run.

    Attributes:
        candidate: Its name; block is the pair (replay, round) that runs are paired by.
        row: run.json, see the replayer.
        directory: Where its files are.
        latency_ns: By row of the original trace's syscalls, -1 where it was not executed; 0 where
            it was left out on purpose. With several times the users the rows of each copy follow
            those of the recording.
        tids: Thread that issued it, likewise.
        late_ns: By how much it was late because its thread, or others that it depends on, took
            longer than recorded; late_by_machine_ns because the machine did not run it in time.
            Empty where no time was kept, or by an older replayer.
        divergences: divergences.json as it stands: roots, skipped and listed ones.
    """

    candidate: str
    block: tuple[int, int]
    row: dict[str, Any]
    directory: Path
    latency_ns: np.ndarray = field(repr=False)
    tids: np.ndarray = field(repr=False)
    divergences: dict[str, Any]
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
        syscalls: Name of every call of it, and again for each copy of its users in the run that
            has most; comms the process that made it; ts_ns its start;
            begins_work whether its thread had paused for ``PAUSE_NS`` before;
            recorded_ns how long it took then.
        unmade: Runs that are still to be made, as a replay was interrupted.
    """

    outputs: list[Path]
    header: dict[str, Any]
    trace: Trace | None
    syscalls: np.ndarray = field(repr=False)
    comms: np.ndarray = field(repr=False)
    ts_ns: np.ndarray = field(repr=False)
    runs: list[Run]
    begins_work: np.ndarray = field(repr=False, default_factory=_nothing)
    recorded_ns: np.ndarray = field(repr=False, default_factory=_nothing)
    unmade: int = 0

    def recorded_comms(self, run: Run) -> dict[int, str]:
        """Return the recorded process name that each thread of a run stood for."""
        if self.trace is None:
            return {}
        made = np.flatnonzero(run.tids >= 0)
        tids, first = np.unique(run.tids[made], return_index=True)
        return dict(zip(tids.tolist(), self.comms[made[first]].tolist(), strict=True))

    @property
    def without_trace(self) -> str:
        """One sentence for a replay whose trace is not at hand."""
        name = Path(str(self.header["trace"])).name
        return (
            f"the replayed trace {name} is not at hand: calls have no names, and processes "
            "neither; --trace DIR says where it is"
        )

    @property
    def what_if(self) -> str:
        """Label of the calls that all runs leave out on purpose; "" if none, or runs differ."""
        labels = {(run.row.get("what_if") or {}).get("label", "") for run in self.runs}
        return str(labels.pop()) if len(labels) == 1 else ""

    @property
    def conditions(self) -> Conditions:
        """What all of its runs were made under."""
        return Conditions.of(self.header)

    @property
    def candidates(self) -> list[str]:
        """Names of the candidates in order of appearance."""
        return list(dict.fromkeys(run.candidate for run in self.runs))

    def matched(self, candidate: str, reference: str) -> list[tuple[Run, Run]]:
        """Pair runs of the same round of the same replay; else, in order, of different replays."""
        by_block = {(run.candidate, run.block): run for run in self.runs}
        blocks = dict.fromkeys(run.block for run in self.runs)
        both = [
            (by_block[candidate, block], by_block[reference, block])
            for block in blocks
            if (candidate, block) in by_block and (reference, block) in by_block
        ]
        ours, theirs = ([run for run in self.runs if run.candidate == name]
                        for name in (candidate, reference))  # fmt: skip
        return both or list(zip(ours, theirs, strict=False))


def is_replay(path: Path) -> bool:
    """Tell whether a directory is the output of a replay."""
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
    headers = [_header(path) for path in outputs]
    _tell_apart(headers)
    tell_kernels_apart(row for header in headers for row in header["runs"])
    _check_one_trace(outputs, headers)
    check_alike(outputs, headers)
    original = _given(trace, headers[0]) if trace else _found(headers[0], outputs[0])
    names, comms, starts, begins, took = _calls(original)
    runs = [
        _run(path, number, row, names)
        for number, (path, header) in enumerate(zip(outputs, headers, strict=True))
        for row in header["runs"]
    ]
    unmade = sum(len(header.get("order", header["runs"])) for header in headers) - len(runs)
    largest = max(runs, key=lambda run: len(run.latency_ns))
    if not len(names):
        size = len(largest.latency_ns)
        names, starts = np.full(size, "call", dtype=object), np.zeros(size, np.int64)
        outs = list(outputs)
        return Replay(outs, headers[0], original, names, comms, starts, runs, unmade=unmade)
    phases = _phases_ns(largest.row)
    starts = np.concatenate([starts + late for late in phases])
    of_all = (np.tile(values, len(phases)) for values in (names, comms, begins, took))
    names, comms, begins, took = of_all
    known = (names, comms, starts, runs, begins, took, unmade)
    return Replay(list(outputs), headers[0], original, *known)


def _phases_ns(row: dict[str, Any]) -> list[int]:
    """Return how long after the recording each of a run's copies of it began; it is the first."""
    scale = (row.get("what_if") or {}).get("scale")
    return [0, *scale["phases_ns"]] if scale else [0]


def _header(path: Path) -> dict[str, Any]:
    file = path / REPLAY_FILE
    if not file.is_file():
        raise SpoolscopeError(
            f"{path} is not a replay (it has no {REPLAY_FILE})",
            remedy="give the directory that 'spoolscope replay -o' wrote",
            exit_code=USAGE,
        )
    try:
        header = json.loads(regular(file).read_text("utf-8"))
        check_sealed(header)
        header.setdefault("trace", "?")
        runs = [dict(row, candidate=str(row["candidate"])) for row in header["runs"]]
    except (ValueError, KeyError, TypeError) as error:
        raise _damaged(file, error) from None
    if not runs:
        raise SpoolscopeError(f"replay {path} has no finished run", remedy="replay again")
    return {**header, "runs": runs}


def _tell_apart(headers: Sequence[dict[str, Any]]) -> None:
    """Make what a replay left out on purpose another candidate, if not all left out the same."""
    rows = [row for header in headers for row in header["runs"]]
    labels = {(row.get("what_if") or {}).get("label") for row in rows}
    for row in rows if len(labels) > 1 else ():
        if what_if := row.get("what_if"):
            row["candidate"] += f" {what_if['label']}"


def _check_one_trace(outputs: Sequence[Path], headers: Sequence[dict[str, Any]]) -> None:
    """Refuse replays of different traces: by what the traces hold, in older replays by place."""
    known = [header.get("trace_identity") for header in headers]
    given = zip(outputs, headers, strict=True)
    places = [os.path.realpath(path / str(header["trace"])) for path, header in given]
    alike = len(set(filter(None, known))) <= 1
    same = alike and (all(known) or len(set(places)) == 1)
    if not same:
        raise SpoolscopeError(
            f"the replays are of different traces: {', '.join(sorted(set(places)))}",
            remedy="compare replays of one trace",
            exit_code=USAGE,
        )


def _given(trace: Path, header: dict[str, Any]) -> Trace:
    opened = Trace.open(trace)
    if not _is_replayed(opened, header):
        raise SpoolscopeError(
            f"{trace} is not the trace that was replayed, which was called "
            f"{Path(str(header['trace'])).name}",
            remedy="give another --trace, or none",
            exit_code=USAGE,
        )
    return opened


def _found(header: dict[str, Any], output: Path) -> Trace | None:
    """Return the replayed trace if it still lies where it was, as seen from the replay."""
    given = Path(str(header["trace"]))
    for path in (output / given, output.absolute().parent / given.name):
        try:
            trace = Trace.open(_short(path))
        except (SpoolscopeError, OSError):  # gone, or not for us to read
            continue
        if _is_replayed(trace, header):
            return trace
    return None


def _short(path: Path) -> Path:
    """Return a path without detours, as seen from here if it lies below."""
    real = Path(os.path.realpath(path))
    here = Path.cwd()
    return real.relative_to(here) if real.is_relative_to(here) else real


def _is_replayed(trace: Trace, header: dict[str, Any]) -> bool:
    """Tell whether a trace is the replayed one; an older replay does not know."""
    return header.get("trace_identity") in (None, trace.identity)


def _calls(trace: Trace | None) -> tuple[np.ndarray, ...]:
    """Return of each call name, process name, start, whether it follows a pause, and its length.

    Without a trace there is nothing.
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


def _run(output: Path, number: int, row: dict[str, Any], names: np.ndarray) -> Run:
    directory = _directory(output, row)
    block = (number, int(row.get("round", 0)))
    divergences = directory / "divergences.json"
    try:
        users = len(_phases_ns(row))
        for name, digest in row.get("digests", {}).items():
            check(directory / name, digest)
        latency, tids, *late = _latency(directory / "outcomes.parquet", len(names), users)
        if row.get("what_if"):  # what was left out cost nothing
            gone = np.tile(np.isin(names, list(row["what_if"]["left_out"])), users)
            latency[: len(gone)][gone & (latency[: len(gone)] < 0)] = 0
        listed = json.loads(divergences.read_text("utf-8")) if divergences.is_file() else {}
        listed = dict(listed)
    except (OSError, ValueError, TypeError, KeyError, pa.ArrowException) as error:
        raise _damaged(directory, error) from None
    return Run(str(row["candidate"]), block, row, directory, latency, tids, listed, *late)


def _directory(output: Path, row: dict[str, Any]) -> Path:
    """Return a run's directory, which lies in the output, wherever that was moved to."""
    by_label = output / Path(str(row.get("run", ""))).name
    if (by_label / "outcomes.parquet").is_file():
        return by_label
    return output / f"{row['candidate']}-r{row.get('round', 0)}"


_LATE = ("late_by_target_ns", "late_by_machine_ns")


def _latency(file: Path, n_calls: int, users: int) -> tuple[np.ndarray, ...]:
    """Return latency and issuing thread by call, -1 where it was not made for real.

    Behind these how late it was, by the target and by the machine; empty if no time was kept.
    """
    kept = set(pq.read_schema(file).names)
    columns = ["call", "issue_ns", "end_ns", "verdict", "reason", "tid"]
    columns += [name for name in _LATE if name in kept] + ["copy"] * (users > 1)
    table = pq.read_table(file, columns=columns)
    verdict, reason = (table.column(name).cast(pa.string()) for name in ("verdict", "reason"))
    made = pc.is_in(verdict, value_set=pa.array(EXECUTED))
    # On a descriptor that this replay never opened, the kernel had nothing to do.
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


def _damaged(path: Path, error: object) -> SpoolscopeError:
    line = str(error).splitlines()[0] if str(error) else type(error).__name__
    return SpoolscopeError(f"replay output {path} is damaged: {line}", remedy="replay again")
