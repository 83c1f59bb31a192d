"""Outcomes of a run, in the engine's file and in Parquet."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from spoolscope.replay import on_disk
from spoolscope.replay.lateness import Lateness
from spoolscope.replay.ops import EXEC, EXIT, FAULT, FORK, LEFT_OUT, Ops, are
from spoolscope.traces import constants
from spoolscope.traces.calls import BY_ID, of_kind
from spoolscope.traces.files import replacing
from spoolscope.traces.flat import DTYPES, NO_CALL_ROW

# The engine has the first four; the last is a divergence that the filesystem explains.
VERDICTS = ("pending", "same", "diverged", "skipped", "of_filesystem")
REASONS = tuple(
    name.removeprefix("REASON_").lower() for name in vars(constants) if name.startswith("REASON_")
)
PENDING, SAME, DIVERGED, SKIPPED, OF_FILESYSTEM = range(5)
BAD_FD = constants.REASON_BAD_FD
_WRITES = of_kind("write", "copy_range")
_LATE = ("late_by_target_ns", "late_by_machine_ns")
_PSEUDO = {FORK: "fork", EXEC: "exec", EXIT: "exit", FAULT: "fault", LEFT_OUT: "left out"}


class Texts(Sequence[str]):
    """Strings of a plan, which are decoded on access."""

    def __init__(self, ends: npt.NDArray[np.uint64], text: npt.NDArray[np.uint8]) -> None:
        self._ends, self._text = ends, text

    def __len__(self) -> int:
        """Return their number."""
        return len(self._ends) - 1

    def __getitem__(self, at: Any) -> Any:
        """Return a string by its index."""
        return self.raw(at).decode(errors="replace")

    def raw(self, at: int) -> bytes:
        """Return the bytes of a string by its index."""
        if not 0 <= at < len(self):
            raise IndexError(at)
        first, past = self._ends[at : at + 2].tolist()
        return self._text[first:past].tobytes()


@dataclass(frozen=True)
class Plan:
    """The sections of a plan file that are needed to judge a run.

    Attributes:
        ops: Operations, mapped from the file.
        entries: Names that are there at the start.
        strings: Names below the target.
        threads: Recorded threads.
        place: Directory for arrays as long as the plan; None is that for temporary files.
    """

    ops: Ops
    entries: npt.NDArray[np.void]
    strings: Texts
    threads: npt.NDArray[np.void]
    place: Path | None = None


class Late:
    """Lateness of each operation of a plan, ns; -1 where it was not made or no time was kept.

    Attributes:
        target: Part because calls of its own thread took longer, or others had to end first.
        machine: Part because the machine, or the replayer, did not run it in time.
    """

    def __init__(self, n: int, place: Path | None) -> None:
        self.target = on_disk.array(n, np.int64, place)
        self.machine = on_disk.array(n, np.int64, place)
        for part in on_disk.parts(n):
            self.target[part] = self.machine[part] = -1

    def keep(self, late: Lateness, made: npt.NDArray[np.bool_]) -> None:
        """Take over the lateness of the operations that were made, in their order."""
        filled = 0
        for part in on_disk.parts(len(made)):
            past = filled + int(made[part].sum())
            found = slice(filled, past)
            self.target[part][made[part]] = late.slower_calls[found] + late.dependencies[found]
            self.machine[part][made[part]] = late.machine[found]
            filled = past


def read_plan(path: Path, *, writable: bool = False) -> Plan:
    """Map the operations and the strings of a plan."""
    raw = np.memmap(path, np.uint8, "r+" if writable else "r")
    header = raw[: DTYPES["plan_header"].itemsize].view(DTYPES["plan_header"])[0]
    ops = _section(raw, header, "ops_at", DTYPES["plan_op"], int(header["n_ops"]))
    entries = _section(raw, header, "entries_at", DTYPES["plan_entry"], int(header["n_entries"]))
    index = _section(
        raw, header, "string_index_at", np.dtype(np.uint64), int(header["n_strings"]) + 1
    )
    threads = _section(raw, header, "threads_at", DTYPES["plan_thread"], int(header["n_threads"]))
    at = int(header["string_bytes_at"])
    return Plan(
        ops, entries, Texts(index, raw[at : at + int(header["string_bytes"])]), threads, path.parent
    )


def _section(
    raw: npt.NDArray[np.uint8], header: np.void, at: str, dtype: "np.dtype[Any]", count: int
) -> npt.NDArray[Any]:
    start = int(header[at])
    return raw[start : start + count * dtype.itemsize].view(dtype)


def read_outcomes(path: Path) -> npt.NDArray[np.void]:
    """Map the outcomes of spoolscope-replay: one record per operation of the plan.

    Changes of the array go to the file.
    """
    if not path.stat().st_size:
        return np.zeros(0, DTYPES["outcome"])
    return np.memmap(path, DTYPES["outcome"], "r+")


def write_parquet(
    plan: Plan,
    outcomes: npt.NDArray[np.void],
    path: Path,
    users: int = 1,
    late: Late | None = None,
) -> None:
    """Write outcomes.parquet: one row per operation, joined to the trace by ``call``.

    With several times the users ``copy`` is the number of the copy; 0 is the recording. The columns
    of ``late`` are null where no time was kept.
    """
    schema = _table(plan, outcomes, slice(0, 0), users, late).schema
    # Numbers that grow with time are stored as differences: 8 bytes per row instead of 19.
    growing = ("op", "call", "issue_ns", "ready_ns", "end_ns", *_LATE)
    with (
        replacing(path) as file,
        pq.ParquetWriter(
            file,
            schema,
            compression="zstd",
            compression_level=3,
            use_dictionary=[name for name in schema.names if name not in growing],
            column_encoding=dict.fromkeys(growing, "DELTA_BINARY_PACKED"),
        ) as writer,
    ):
        for part in on_disk.parts(len(outcomes)):
            writer.write_table(_table(plan, outcomes, part, users, late))


def _table(
    plan: Plan, outcomes: npt.NDArray[np.void], part: slice, users: int, late: Late | None
) -> pa.Table:
    call, results = plan.ops["call"][part], outcomes[part]
    failed = results["ret"] < 0
    copy = plan.ops["thread"][part] // max(len(plan.threads) // users, 1)
    return pa.table(
        {
            "op": pa.array(np.arange(part.start, part.stop, dtype=np.int64)),
            "call": pa.array(call.astype(np.int64), mask=call == NO_CALL_ROW),
            "issue_ns": pa.array(results["issue_ns"]),
            "ready_ns": pa.array(results["ready_ns"]),
            "end_ns": pa.array(results["end_ns"]),
            "ret": pa.array(np.where(failed, -1, results["ret"])),
            "errno": pa.array(np.where(failed, -results["ret"], 0).astype(np.int32)),
            "verdict": _words(results["verdict"], VERDICTS),
            "reason": _words(results["reason"], REASONS),
            "tid": pa.array(results["tid"].astype(np.int32)),
            "copy": pa.array(copy.astype(np.int32)),
            **dict(zip(_LATE, _lates(part, len(results), late), strict=True)),
        }
    )


def _lates(part: slice, n: int, late: Late | None) -> list[pa.Array]:
    if late is None:
        return [pa.nulls(n, pa.int64())] * len(_LATE)
    return [pa.array(ns, mask=ns < 0) for ns in (late.target[part], late.machine[part])]


def _words(codes: npt.NDArray[np.uint8], words: tuple[str, ...]) -> pa.Array:
    return pa.DictionaryArray.from_arrays(pa.array(codes.astype(np.int32)), pa.array(words))


def judged(outcomes: npt.NDArray[np.void], *verdicts: int) -> npt.NDArray[np.int64]:
    """Return the operations that got one of these verdicts."""
    found = [np.zeros(0, np.int64)]
    for part in on_disk.parts(len(outcomes)):
        chosen = np.isin(outcomes["verdict"][part], verdicts)
        found.append(np.flatnonzero(chosen) + part.start)
    return np.concatenate(found)


def written_bytes(plan: Plan, outcomes: npt.NDArray[np.void]) -> int:
    """Return how many bytes calls wrote to files; writes through mappings are not in it."""
    total = 0
    for part in on_disk.parts(len(outcomes)):
        results = outcomes[part]
        made = np.isin(results["verdict"], (SAME, DIVERGED, OF_FILESYSTEM))
        made &= (results["reason"] != BAD_FD) & (results["ret"] > 0)
        made &= are(plan.ops["op"][part], _WRITES)
        total += int(results["ret"][made].sum())
    return total


def call_name(op: np.void) -> str:
    """Return the name of an operation's call."""
    number = int(op["op"])
    return _PSEUDO.get(number) or (BY_ID[number].name if number in BY_ID else f"call {number}")
