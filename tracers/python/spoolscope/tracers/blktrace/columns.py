"""The table block_stages."""

from array import array
from collections.abc import Iterator, Mapping
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from spoolscope.tracers.blktrace import records
from spoolscope.tracers.blktrace.records import Event
from spoolscope.tracers.blktrace.stages import NEVER, Request, join
from spoolscope.traces.comms import Comms

_NUMBERS = (
    "dev", "sector", "length", "tid", "error", "bios", "merged", "requeued", "from_dev",
    "from_sector",
)  # fmt: skip
# Column -> attribute of a request: nanoseconds after the first stage.
_STAGES = {
    "g_ns": "getrq",
    "i_ns": "insert",
    "u_ns": "unplug",
    "d_ns": "issue",
    "c_ns": "complete",
    "end_ns": "end",
}
OPS = np.array(["read", "write", "flush", "discard", "other"], object)


class BlockTrace(Protocol):
    """A block trace: its events in the order of their times, and names of threads."""

    def name(self, tid: int, time_ns: int) -> bytes | None:
        """Return the name of a thread at a time, CLOCK_MONOTONIC."""

    def __iter__(self) -> Iterator[Event]:
        """Yield the events."""


def stage_columns(
    events: BlockTrace, shift_ns: int, comms: Comms, window: tuple[int, int] | None = None
) -> dict[str, Any]:
    """Return the columns of block_stages.

    Args:
        events: A block trace.
        shift_ns: Difference to add to CLOCK_MONOTONIC to get nanoseconds since the epoch.
        comms: How names of threads are shown.
        window: Leave out requests that ended before or began after these times, CLOCK_MONOTONIC.
    """
    rows = _Rows(window or (0, np.iinfo(np.int64).max))
    join(events, rows.add)
    number = {name: np.frombuffer(values, np.int64) for name, values in rows.numbers.items()}
    tid = number["tid"].astype(np.int32)
    said = [events.name(*of) for of in zip(tid.tolist(), number["begin"].tolist(), strict=True)]
    return {
        "ts_ns": number["begin"] + shift_ns,
        **{name: np.ma.masked_equal(number[name], NEVER) for name in _STAGES},
        "dev": number["dev"],
        "sector": number["sector"],
        "bytes": number["length"],
        "op": OPS[number["op"]],
        "rwbs": np.array(rows.letters, object),
        "bios": number["bios"].astype(np.int32),
        "merged": number["merged"].astype(np.int32),
        "requeued": number["requeued"].astype(np.int32),
        "from_dev": np.ma.masked_equal(number["from_dev"], 0),
        "from_sector": np.ma.masked_equal(number["from_sector"], NEVER),
        "error": number["error"].astype(np.int32),
        "tid": tid,
        "comm": _nullable([None if name is None else comms.text(name) for name in said]),
    }


def request_columns(stages: Mapping[str, Any]) -> dict[str, Any]:
    """Return the columns of block_ios from those of block_stages.

    These are the requests with an issue and a completion. The events do not name processes, so
    pid is the thread's id.
    """
    known = {name: np.ma.asarray(stages[name]) for name in ("g_ns", "i_ns", "d_ns", "c_ns")}
    whole = ~(np.ma.getmaskarray(known["d_ns"]) | np.ma.getmaskarray(known["c_ns"]))
    queued = np.where(np.ma.getmaskarray(known["i_ns"]), known["g_ns"].filled(0), known["i_ns"])
    issued, done = known["d_ns"].filled(0), known["c_ns"].filled(0)
    queued = np.minimum(np.asarray(queued, np.int64), issued)
    letters = stages["rwbs"].astype(str)
    first = np.char.startswith(letters, "F")
    kind = np.char.lstrip(letters, "F")
    comms = np.array([comm or "" for comm in stages["comm"]], object)
    columns = {
        "ts_ns": stages["ts_ns"] + queued,
        "queue_ns": issued - queued,
        "device_ns": done - issued,
        **{name: stages[name] for name in ("dev", "sector", "bytes", "op", "error", "tid")},
        "sync": np.char.find(kind, "S") > 0,
        "meta": np.char.find(kind, "M") > 0,
        "fua": np.char.find(kind, "F") > 0,
        "preflush": first & (stages["op"] != "flush"),
        "parent_dev": stages["from_dev"],
        "parent_sector": stages["from_sector"],
        "pid": stages["tid"],
        "comm": comms,
    }
    order = np.argsort(columns["ts_ns"][whole], kind="stable")
    return {name: values[whole][order] for name, values in columns.items()}


class _Rows:
    """Requests as columns of integers: 160 bytes a request."""

    def __init__(self, window: tuple[int, int]) -> None:
        self._first, self._last = window
        self.numbers = {n: array("q") for n in ("begin", "op", *_NUMBERS, *_STAGES)}
        self.letters: list[str] = []

    def add(self, request: Request) -> None:
        begin = request.begin
        ended = max(request.complete, request.end)
        if begin > self._last or NEVER != ended < self._first:
            return
        numbers = self.numbers
        numbers["begin"].append(begin)
        numbers["op"].append(_op(request))
        self.letters.append(request.letters)
        for name in _NUMBERS:
            numbers[name].append(getattr(request, name))
        for name, stage in _STAGES.items():
            time = getattr(request, stage)
            numbers[name].append(time if time == NEVER else time - begin)


def _op(request: Request) -> int:
    """Return the index into OPS; events do not distinguish a write of zeroes from a write."""
    category = request.category
    if category & records.PASSTHROUGH:
        return 4
    if category & records.DISCARD:
        return 3
    if category & records.WRITE:
        return 1
    return 2 if category & records.FLUSH and not request.length else 0


def _nullable(texts: list[str | None]) -> npt.NDArray[np.object_]:
    return np.array(texts, object)
