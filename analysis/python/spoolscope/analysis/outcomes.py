"""Read the output of a replay: its runs, and the latency of every call in each of them."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from spoolscope.traces.errors import USAGE, SpoolscopeError
from spoolscope.traces.trace import Trace

REPLAY_FILE = "replay.json"
_EXECUTED_CODES = (1, 2)  # SPSC_VERDICT_SAME, SPSC_VERDICT_DIVERGED
_EXECUTED_WORDS = ("same", "diverged")
DIVERGED = (2, "diverged")


@dataclass(frozen=True)
class Run:
    """One replay run.

    Attributes:
        candidate: Its name; block is the pair (replay, round) that runs are paired by.
        row: run.json, see the replayer.
        directory: Where its files are.
        latency_ns: By row of the original trace's syscalls, -1 where it was not executed.
        divergences: divergences.json as it stands, an empty list if there is none.
    """

    candidate: str
    block: tuple[int, int]
    row: dict[str, Any]
    directory: Path
    latency_ns: np.ndarray = field(repr=False)
    divergences: Any = None

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
        syscalls: Name of every call of it; ts_ns their recorded starts.
    """

    outputs: list[Path]
    header: dict[str, Any]
    trace: Trace | None
    syscalls: np.ndarray = field(repr=False)
    ts_ns: np.ndarray = field(repr=False)
    runs: list[Run]

    @property
    def candidates(self) -> list[str]:
        """Names of the candidates in order of appearance."""
        return list(dict.fromkeys(run.candidate for run in self.runs))


def is_replay(path: Path) -> bool:
    """Tell whether a directory is the output of a replay."""
    return (path / REPLAY_FILE).is_file()


def read_replay(outputs: Sequence[Path]) -> Replay:
    """Read one or more outputs of ``spoolscope replay``.

    Raises:
        SpoolscopeError: not a replay, without runs, damaged, or replays of different traces.
    """
    headers = [_header(path) for path in outputs]
    originals = {str(header.get("trace")) for header in headers}
    if len(originals) > 1:
        raise SpoolscopeError(
            f"the replays are of different traces: {', '.join(sorted(originals))}",
            remedy="compare replays of one trace",
            exit_code=USAGE,
        )
    trace, names, starts = _original(headers[0], outputs[0])
    runs = [
        _run(path, number, row, len(names))
        for number, (path, header) in enumerate(zip(outputs, headers, strict=True))
        for row in header["runs"]
    ]
    size = max(len(run.latency_ns) for run in runs)
    if not len(names):
        names, starts = np.full(size, "call", dtype=object), np.zeros(size, np.int64)
    return Replay(list(outputs), headers[0], trace, names, starts, runs)


def _header(path: Path) -> dict[str, Any]:
    file = path / REPLAY_FILE
    if not file.is_file():
        raise SpoolscopeError(
            f"{path} is not a replay (it has no {REPLAY_FILE})",
            remedy="give the directory that 'spoolscope replay -o' wrote",
            exit_code=USAGE,
        )
    try:
        header = json.loads(file.read_text("utf-8"))
        runs = header["runs"]
    except (ValueError, KeyError, TypeError) as error:
        raise _damaged(file, error) from None
    if not runs:
        raise SpoolscopeError(f"replay {path} has no finished run", remedy="replay again")
    return dict(header)


def _original(header: dict[str, Any], output: Path) -> tuple[Trace | None, np.ndarray, np.ndarray]:
    given = Path(str(header.get("trace", "")))
    for path in (given, output / given, output.parent / given.name):
        try:
            trace = Trace.open(path)
        except SpoolscopeError:
            continue
        table = trace.table("syscalls", ["syscall", "ts_ns"])
        names = table.column("syscall").cast(pa.string()).to_numpy(zero_copy_only=False)
        return trace, names, table.column("ts_ns").to_numpy()
    return None, np.empty(0, dtype=object), np.empty(0, np.int64)


def _run(output: Path, number: int, row: dict[str, Any], n_calls: int) -> Run:
    directory = _directory(output, row)
    block = (number, int(row.get("round", 0)))
    divergences = directory / "divergences.json"
    try:
        latency = _latency(directory / "outcomes.parquet", n_calls)
        listed = json.loads(divergences.read_text("utf-8")) if divergences.is_file() else []
    except (OSError, ValueError, KeyError, pa.ArrowException) as error:
        raise _damaged(directory, error) from None
    return Run(str(row["candidate"]), block, row, directory, latency, listed)


def _directory(output: Path, row: dict[str, Any]) -> Path:
    """Find a run's directory even if the output was moved since."""
    given = Path(str(row.get("run", "")))
    named = f"{row['candidate']}-r{row.get('round', 0)}"
    for path in (output / given.name, output / named, given, output / given):
        if (path / "outcomes.parquet").is_file():
            return path
    return output / named


def _latency(file: Path, n_calls: int) -> np.ndarray:
    table = pq.read_table(file, columns=["call", "issue_ns", "end_ns", "verdict"])
    verdict = table.column("verdict")
    codes: pa.Array = pa.array(
        _EXECUTED_CODES if pa.types.is_integer(verdict.type) else _EXECUTED_WORDS
    )
    if pa.types.is_dictionary(verdict.type):
        verdict = verdict.cast(pa.string())
    executed = pc.is_in(verdict, value_set=codes.cast(verdict.type))
    table = table.filter(pc.and_(executed, pc.is_valid(table.column("call"))))
    calls = table.column("call").to_numpy()
    size = n_calls or int(calls.max(initial=-1)) + 1
    latency = np.full(size, -1, np.int64)
    latency[calls] = table.column("end_ns").to_numpy() - table.column("issue_ns").to_numpy()
    return latency


def _damaged(path: Path, error: object) -> SpoolscopeError:
    line = str(error).splitlines()[0] if str(error) else type(error).__name__
    return SpoolscopeError(f"replay output {path} is damaged: {line}", remedy="replay again")
