"""Calls of a capture with most of their times and sizes left as they were stored.

Only the table of the calls needs these members. They are a third of the memory of a conversion,
and to unpack them once more is 3 % of its time.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spoolscope.traces.flat import DTYPES

CALL = DTYPES["syscall"]
LEFT_PACKED = (
    "oncpu_ns", "blocked_ns", "runq_ns", "preempted_ns", "stolen_ns",
    "size", "count", "cpu", "lock_type",
)  # fmt: skip
"""Members of a call that nothing but the table of the calls needs."""
FOLLOWED = np.dtype([(name, CALL[name]) for name in CALL.names or () if name not in LEFT_PACKED])
"""The other members."""
_WORDS = CALL.itemsize // 8
Records = npt.NDArray[np.void]
Int = npt.NDArray[np.int64]


class Chunk(NamedTuple):
    """A chunk of records with a correct checksum."""

    n: int
    codec: int
    raw_bytes: int
    stored: memoryview

    def unpacked(self) -> bytes:
        """Return its content."""
        if self.codec == 0:
            return bytes(self.stored)
        raw: bytes = pa.decompress(self.stored, self.raw_bytes, codec="zstd", asbytes=True)
        return raw


def of_chunks(chunks: Sequence[Chunk], members: np.dtype[np.void]) -> Records:
    """Return the members in a dtype of all calls in chunks."""
    calls, at = np.empty(sum(chunk.n for chunk in chunks), members), 0
    for chunk in chunks:
        rows = np.frombuffer(chunk.unpacked(), CALL)
        part = calls[at : at + chunk.n]
        for name in members.names or ():
            part[name] = rows[name]
        at += chunk.n
    return calls


class PackedCalls:
    """Calls as a recorder stored them.

    Args:
        chunks: All their chunks, in order.
    """

    def __init__(self, chunks: Sequence[Chunk]) -> None:
        # Copies, as the views keep the whole file in memory.
        self.chunks = [chunk._replace(stored=memoryview(bytes(chunk.stored))) for chunk in chunks]
        ends = np.cumsum([0, *(chunk.n for chunk in chunks)])
        self._first = ends[:-1]
        self._near: dict[int, npt.NDArray[np.uint64]] = {}

    def rows(self, rows: Int) -> Records:
        """Return calls by number. Numbers that follow one another in calls of this are cheapest.

        The chunks of one call of this remain unpacked until the next one.
        """
        words = np.empty((len(rows), _WORDS), np.uint64)  # numpy copies these faster than records
        chunk = np.searchsorted(self._first, rows, "right") - 1
        near: dict[int, npt.NDArray[np.uint64]] = {}
        for number in np.unique(chunk).tolist():
            here = np.flatnonzero(chunk == number)
            unpacked = self._near.get(number)
            if unpacked is None:
                stored = self.chunks[number].unpacked()
                unpacked = np.frombuffer(stored, np.uint64).reshape(-1, _WORDS)
            near[number] = unpacked
            words[here] = unpacked.take(rows[here] - self._first[number], axis=0)
        self._near = near
        return words.view(CALL).ravel()
