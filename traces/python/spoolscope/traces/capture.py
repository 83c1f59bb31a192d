"""Reader of native captures: it reads all whole chunks, even if the recorder crashed."""

import json
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from spoolscope.traces.errors import SpoolscopeError
from spoolscope.traces.files import regular
from spoolscope.traces.flat import DTYPES, STACK_FRAMES
from spoolscope.traces.packed_calls import FOLLOWED, Chunk, PackedCalls, of_chunks

FILE_MAGIC = b"SPOOLSEG"
CHUNK_MAGIC = 0x4B435053
VERSION = 7
CLOSED = 0
# A recorder's chunks hold at most 16 MiB of calls; a kernel's symbols are smaller than this limit.
LARGEST_CHUNK = 256 << 20
STACK, STRING, SYMBOLS, META = 8, 9, 10, 11
RECORDS = {
    1: "syscall",
    2: "switch",
    3: "task",
    4: "journal",
    5: "block",
    6: "open_file",
    7: "tree",
    17: "wait",
    18: "shed",
    15: "fault",
    16: "uring",
    19: "prelude",
    12: "held_lock",
    13: "mapping",
    14: "xattr",
    20: "sample",
    21: "user_call",
}
# dtype of each kind of record, from its struct.
ROWS = {name: DTYPES["syscall" if name == "prelude" else name] for name in RECORDS.values()}
RENUMBERED = "seq", "path", "path2"
"""Members of calls that are changed when segments are joined, and when calls are numbered on."""
Records = npt.NDArray[np.void]


@dataclass
class Capture:
    """The content of a capture file.

    Attributes:
        start_mono_ns: CLOCK_MONOTONIC when recording began.
        start_real_ns: CLOCK_REALTIME of the same moment.
        number: Which segment of its recording this is, from 1.
        closed: The recorder ended in order; False after a crash or if the file was cut.
        bytes_unread: Bytes after the last whole chunk.
        records: Arrays by record name, see ROWS; in the order they were written. Calls that were
            read from a file have the members ``FOLLOWED`` of packed_calls.py.
        packed: All members of these calls; None if ``records`` has them.
        strings: Names by id; id 0 is the empty name.
        stacks: (n, 32) addresses by id; row 0 is empty.
        symbols: Function name by address.
        meta: Meta data that the recorder wrote at its end; empty if it crashed.
    """

    start_mono_ns: int
    start_real_ns: int
    closed: bool
    number: int = 1
    bytes_unread: int = 0
    records: dict[str, Records] = field(default_factory=dict)
    strings: list[bytes] = field(default_factory=lambda: [b""])
    stacks: npt.NDArray[np.uint64] = field(
        default_factory=lambda: np.zeros((1, STACK_FRAMES), np.uint64)
    )
    symbols: dict[int, str] = field(default_factory=dict)
    meta: dict[str, Any] = field(default_factory=dict)
    packed: PackedCalls | None = None

    def whole_calls(self) -> Callable[[npt.NDArray[np.int64]], Records]:
        """Return a function that returns calls with all their members, given their numbers.

        Its ``RENUMBERED`` members are those of ``records``.
        """
        packed = self.packed
        if packed is None:
            whole: Callable[[npt.NDArray[np.int64]], Records] = self.records["syscall"].__getitem__
            return whole

        def completed(rows: npt.NDArray[np.int64]) -> Records:
            calls, present = packed.rows(rows), self.records["syscall"]
            for name in RENUMBERED:
                calls[name] = present[name][rows]
            return calls

        return completed

    def keep_of_calls(self, members: Sequence[str]) -> None:
        """Keep only these members of calls in ``records``; the others are most of its memory.

        Args:
            members: Among them are ``RENUMBERED``.
        """
        calls = self.records.pop("syscall")
        kind = np.dtype([(name, calls.dtype[name]) for name in members])
        if self.packed is None:
            kept = np.empty(len(calls), kind)
            for name in members:
                kept[name] = calls[name]
        else:
            changed = {name: calls[name].copy() for name in RENUMBERED}
            del calls  # before the memory for the others is needed
            kept = of_chunks(self.packed.chunks, kind)
            for name in RENUMBERED:
                kept[name] = changed.pop(name)
        self.records["syscall"] = kept

    def stacks_with(self, *frames: str) -> npt.NDArray[np.int64]:
        """Return the ids of the stacks with any of these functions in them."""
        named = [a for a, name in self.symbols.items() if name.split(".")[0] in frames]
        found = np.isin(self.stacks, np.array(named, np.uint64)).any(axis=1)
        return np.nonzero(found)[0].astype(np.int64)


def read_capture(path: Path) -> Capture:
    """Read every whole chunk of a capture file.

    Raises:
        SpoolscopeError: the file is not a capture, or of another version.
    """
    data = memoryview(regular(path).read_bytes())
    capture = _open(path, data)
    # Chunks are unpacked last, and kind by kind: the calls of a long recording fill the memory.
    parts: dict[str, list[Chunk]] = {name: [] for name in RECORDS.values()}
    stacks = [capture.stacks]
    at = DTYPES["file_header"].itemsize
    size = DTYPES["chunk_header"].itemsize
    while at + size <= len(data):
        header = np.frombuffer(data[at : at + size], DTYPES["chunk_header"])[0].copy()
        body = data[at + size : at + size + int(header["stored_bytes"])]
        chunk = _checked(header, body)
        if chunk is None:
            break
        kind = int(header["kind"])
        _require_sense(path, at, kind, chunk)
        if kind in RECORDS:
            parts[RECORDS[kind]].append(chunk)
        elif kind == STACK:
            rows = np.frombuffer(chunk.unpacked(), np.uint64)
            stacks.append(rows.reshape(chunk.n, STACK_FRAMES))
        else:
            _names(capture, kind, chunk.unpacked(), chunk.n)
        at += size + len(body)
    capture.bytes_unread = len(data) - at
    capture.stacks = np.concatenate(stacks)
    capture.records = {name: _end_names(_records(name, chunks)) for name, chunks in parts.items()}
    capture.packed = PackedCalls(parts["syscall"])
    return capture


def _require_sense(path: Path, at: int, kind: int, chunk: Chunk) -> None:
    """Refuse a chunk whose size differs from its header: a correct checksum may be forged."""
    length = ROWS[RECORDS[kind]].itemsize * chunk.n if kind in RECORDS else chunk.raw_bytes
    if length != chunk.raw_bytes or length > LARGEST_CHUNK:
        raise SpoolscopeError(
            f"the chunk at byte {at} of {path} tells {chunk.n} records in {chunk.raw_bytes} bytes",
            remedy="no recorder wrote that: record again",
        )


def _records(name: str, chunks: list[Chunk]) -> Records:
    if name in ("syscall", "prelude"):
        return of_chunks(chunks, FOLLOWED)
    records = np.empty(sum(chunk.n for chunk in chunks), ROWS[name])
    at = 0
    for chunk in chunks:
        records[at : at + chunk.n] = np.frombuffer(chunk.unpacked(), ROWS[name])
        at += chunk.n
    return records


def _end_names(records: Records) -> Records:
    """Zero the bytes after the NUL of thread names: the BPF programs leave old bytes there."""
    for member in ("comm", "waker_comm", "held_comm", "owner_comm"):
        if member in (records.dtype.names or ()):
            width = records.dtype[member].itemsize
            letters = records[member].copy().view(np.uint8).reshape(len(records), width)
            ended = np.zeros(len(records), np.bool_)
            for column in letters.T:
                ended |= column == 0
                column[ended] = 0
            records[member] = letters.view(records.dtype[member]).ravel()
    return records


def _open(path: Path, data: memoryview) -> Capture:
    size = DTYPES["file_header"].itemsize
    if len(data) < size or bytes(data[:8]) != FILE_MAGIC:
        raise SpoolscopeError(f"{path} is not a capture", remedy="record again")
    header = np.frombuffer(data[:size], DTYPES["file_header"])[0].copy()
    if header["version"] != VERSION:
        raise SpoolscopeError(
            f"{path} is a capture of version {header['version']}, this reads {VERSION}",
            remedy="use the spoolscope that recorded it",
        )
    stated, header["crc32"] = int(header["crc32"]), 0
    if zlib.crc32(header.tobytes()) != stated:
        raise SpoolscopeError(
            f"the first {size} bytes of {path} are damaged", remedy="copy it again, or record again"
        )
    return Capture(
        start_mono_ns=int(header["start_mono_ns"]),
        start_real_ns=int(header["start_real_ns"]),
        closed=int(header["state"]) == CLOSED,
        number=int(header["number"]),
    )


def _checked(header: Any, stored: memoryview) -> Chunk | None:
    """Return the chunk, or None if it is cut or damaged."""
    if header["magic"] != CHUNK_MAGIC or len(stored) < header["stored_bytes"]:
        return None
    stated, header["crc32"] = int(header["crc32"]), 0
    if zlib.crc32(stored, zlib.crc32(header.tobytes())) != stated:
        return None
    n, codec, raw_bytes = (int(header[word]) for word in ("n_records", "codec", "raw_bytes"))
    return Chunk(n, codec, raw_bytes, stored)


def _names(capture: Capture, kind: int, raw: bytes, n: int) -> None:
    if kind == STRING:
        lengths = np.frombuffer(raw, np.uint32, n).tolist()
        at = 4 * n
        for length in lengths:
            capture.strings.append(raw[at : at + length])
            at += length
    elif kind == SYMBOLS:
        for line in raw.decode().splitlines():
            address, _, name = line.partition(" ")
            capture.symbols[int(address, 16)] = name
    elif kind == META:
        capture.meta = json.loads(raw)
