"""The events of a block trace: ``struct blk_io_trace``, include/uapi/linux/blktrace_api.h.

Version 7, the only one that kernels up to 6.18 write. Its times are CLOCK_MONOTONIC: blktrace
uses ktime_get(), ftrace the clock in trace_clock, which the module ``ftrace`` sets to mono.
"""

import re
import struct
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np

from spoolscope.traces.errors import SpoolscopeError

# magic, sequence, time, sector, bytes, action, pid, device, cpu, error, pdu_len
HEADER = struct.Struct("<IIQQIIIIIhH")
_TIME_AND_LENGTH = struct.Struct("<IIQ30xH")
MAGIC = 0x65617407
_WORD = struct.pack("<I", MAGIC)
_ANY_VERSION = _WORD[1:]
_OTHER_ENDIAN = struct.pack(">I", MAGIC)

# Low 16 bits of an action, enum blktrace_act.
QUEUE, BACKMERGE, FRONTMERGE, GETRQ, SLEEPRQ, REQUEUE, ISSUE, COMPLETE = range(1, 9)
PLUG, UNPLUG_IO, UNPLUG_TIMER, INSERT, SPLIT, BOUNCE, REMAP, ABORT, DRV_DATA = range(9, 18)
FROM_CGROUP = 1 << 8
# High 16 bits, enum blktrace_cat.
READ, WRITE, FLUSH, SYNC = 1 << 0, 1 << 1, 1 << 2, 1 << 3
PASSTHROUGH, NOTIFY, AHEAD, META, DISCARD, FUA = 1 << 9, 1 << 10, 1 << 11, 1 << 12, 1 << 13, 1 << 15
# A notification has such an action instead, enum blktrace_notify.
PROCESS, TIMESTAMP = 0, 1
_WALL = struct.Struct("<II")
_LOST = re.compile(rb"CPU:\d+ \[LOST (\d+) EVENTS\]")


class Event(NamedTuple):
    """One event.

    Attributes:
        time_ns: CLOCK_MONOTONIC.
        dev: Disk, major << 20 | minor.
        sector: First sector of 512 bytes.
        length: Bytes.
        action: One of the constants of this module.
        category: Bits of the operation, likewise.
        tid: Thread that ran on the CPU of the event.
        cpu: That CPU.
        error: 0, or a negative error number.
        extra: Data of the action: depth of an unplug, rest of a split, source of a remap.
    """

    time_ns: int
    dev: int
    sector: int
    length: int
    action: int
    category: int
    tid: int
    cpu: int
    error: int
    extra: bytes


@dataclass
class Events:
    """The events of some files, in the order of their times.

    Attributes:
        names: Name of each thread that the trace names, by tid.
        lost: Number of lost events that the stream itself states.
        foreign_bytes: Bytes that belong to no event: text of bpf_printk in ftrace's buffer, or the
            torn end of a file.
        wall_ns: Difference to add to times to get nanoseconds since the epoch; None if unknown.
    """

    files: Sequence[Path]
    names: dict[int, bytes] = field(default_factory=dict)
    lost: int = 0
    foreign_bytes: int = 0
    wall_ns: int | None = None
    _numbers: dict[tuple[int, int], list[int]] = field(default_factory=dict)
    _data: list[bytes] = field(default_factory=list)
    _at: "array[int]" = field(default_factory=lambda: array("Q"))
    _times: "array[int]" = field(default_factory=lambda: array("Q"))

    def __len__(self) -> int:
        return len(self._at)

    def __iter__(self) -> Iterator[Event]:
        data = b"".join(self._data)
        order = np.argsort(np.frombuffer(self._times, np.uint64), kind="stable")
        for at in np.frombuffer(self._at, np.uint64)[order].tolist():
            yield _event(data, at)

    def name(self, tid: int, _time_ns: int) -> bytes | None:
        """Return the last name of a thread; the events that tell it may come later."""
        return self.names.get(tid)

    def add(self, data: bytes, file: Path) -> None:
        """Find the events in a file's content."""
        base, at, end = sum(map(len, self._data)), 0, len(data) - HEADER.size
        while at <= end:
            magic, sequence, time_ns, extra = _TIME_AND_LENGTH.unpack_from(data, at)
            if magic != MAGIC:
                at = self._skip(data, at, file)
                continue
            size = HEADER.size + extra
            if at + size > len(data):
                break
            event = _event(data, at)
            if event.category & NOTIFY:
                if event.action == PROCESS:
                    self.names[event.tid] = event.extra.split(b"\0")[0]
                elif event.action == TIMESTAMP and len(event.extra) >= _WALL.size:
                    seconds, ns = _WALL.unpack_from(event.extra)
                    self.wall_ns = seconds * 1_000_000_000 + ns - time_ns
            else:
                self._number(event, sequence)
                self._at.append(base + at)
                self._times.append(time_ns)
            at += size
        self.foreign_bytes += len(data) - at
        self._data.append(data)

    @property
    def skipped(self) -> int:
        """Missing events by blktrace's numbers of each disk and CPU; ftrace has no numbers."""
        return sum(last - first + 1 - n for first, last, n in self._numbers.values() if last)

    def _number(self, event: Event, sequence: int) -> None:
        known = self._numbers.setdefault((event.dev, event.cpu), [sequence, sequence, 0])
        known[:] = min(known[0], sequence), max(known[1], sequence), known[2] + 1

    def _skip(self, data: bytes, at: int, file: Path) -> int:
        """Return where the next event begins; ftrace reports losses as text between events."""
        if data[at + 1 : at + 4] == _ANY_VERSION or data[at : at + 4] == _OTHER_ENDIAN:
            raise SpoolscopeError(
                f"{file} is a block trace of another version or byte order",
                remedy="read it with the blkparse of the machine that wrote it",
            )
        found = data.find(_WORD, at)
        until = found if found >= 0 else len(data)
        self.lost += sum(int(n) for n in _LOST.findall(data, at, until))
        # blktrace ends its files with zeros when it is killed.
        self.foreign_bytes += len(data[at:until].rstrip(b"\0"))
        return until


def read_events(files: Sequence[Path]) -> Events:
    """Read a block trace: one stream, or blktrace's files of the CPUs.

    Raises:
        SpoolscopeError: a file is missing or of another version or byte order.
    """
    events = Events(files)
    for file in files:
        try:
            events.add(file.read_bytes(), file)
        except OSError as error:
            raise SpoolscopeError(
                f"cannot read {file}: {error.strerror}", remedy="give the files that blktrace wrote"
            ) from error
    return events


def process_note(tid: int, name: bytes, time_ns: int, dev: int) -> bytes:
    """Return the event that names a thread; blktrace writes such events, ftrace does not."""
    action = NOTIFY << 16 | PROCESS
    return HEADER.pack(MAGIC, 0, time_ns, 0, 0, action, tid, dev, 0, 0, 16) + name.ljust(16, b"\0")


def _event(data: bytes, at: int) -> Event:
    fields = HEADER.unpack_from(data, at)
    _, _, time_ns, sector, length, action, tid, dev, cpu, error, extra = fields
    begin = at + HEADER.size + (8 if action & FROM_CGROUP else 0)
    return Event(
        time_ns,
        dev,
        sector,
        length,
        action & 0xFF,
        action >> 16,
        tid,
        cpu,
        error,
        data[begin : at + HEADER.size + extra],
    )


def letters(category: int, length: int) -> str:
    """Return the operation as blkparse prints it (RWBS)."""
    kind = "D" if category & DISCARD else "W" if category & WRITE else "R" if length else "N"
    flags = ((AHEAD, "A"), (SYNC, "S"), (META, "M"))
    return (
        ("F" if category & FLUSH else "")
        + kind
        + ("F" if category & FUA else "")
        + "".join(letter for bit, letter in flags if category & bit)
    )
