"""The table block_stages."""

from array import array
from typing import Any

import numpy as np
import numpy.typing as npt

from spoolscope.tracers.blktrace import records
from spoolscope.tracers.blktrace.records import Events
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


def stage_columns(
    events: Events, shift_ns: int, comms: Comms, window: tuple[int, int] | None = None
) -> dict[str, Any]:
    """Return the columns of block_stages.

    Args:
        events: A block trace.
        shift_ns: What to add to CLOCK_MONOTONIC to get nanoseconds since the epoch.
        comms: How names of threads are shown.
        window: Leave out requests that ended before or began after these times, CLOCK_MONOTONIC.
    """
    rows = _Rows(window or (0, np.iinfo(np.int64).max))
    join(events, rows.add)
    number = {name: np.frombuffer(values, np.int64) for name, values in rows.numbers.items()}
    tid = number["tid"].astype(np.int32)
    names = {t: comms.text(events.names[t]) for t in np.unique(tid).tolist() if t in events.names}
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
        "comm": _nullable([names.get(t) for t in tid.tolist()]),
    }


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
    """Index into OPS; a write of zeroes is a write: the events do not tell them apart."""
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
