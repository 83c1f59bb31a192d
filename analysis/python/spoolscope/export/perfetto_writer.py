"""Packets of a Perfetto trace, one sequence of track events with interned names.

The numbers are of perfetto/trace/trace_packet.proto and what it includes.
"""

from collections.abc import Mapping, Sequence
from typing import BinaryIO

from spoolscope.export.protobuf import VARINT, fixed64, integer, key, message, text, varint

Args = Mapping[str, int | str | None]
NOTHING: Args = {}

_PACKET = 1  # of Trace
_TIMESTAMP, _SEQUENCE, _TRACK_EVENT, _INTERNED, _FLAGS = 8, 10, 11, 12, 13  # of TracePacket
_CLOCK_SNAPSHOT, _DESCRIPTOR = 6, 60
_INT = key(4, VARINT)  # of DebugAnnotation
_AT = key(_TIMESTAMP, VARINT)
_STATE_CLEARED, _NEEDS_STATE = 1, 2
_BEGIN, _END, _COUNT = 1, 2, 4  # TrackEvent.Type
_REALTIME, _BOOTTIME = 1, 6  # BuiltinClock
_UNIT_COUNT = 2
_EVENT_NAMES, _ARG_NAMES, _ARG_VALUES = 2, 3, 29  # of InternedData

MOST_VALUES = 100_000
"""Most argument texts that are interned; others are written each time, to bound memory."""


class Writer:
    """Writer of packets to a file; every track gets a number when it is made."""

    def __init__(self, file: BinaryIO, start_ns: int) -> None:
        """Begin the trace: its clock is the wall clock, from ``start_ns`` on."""
        self._file = file
        self._tracks = 0
        self._names: dict[str, int] = {}
        self._arg_names: dict[str, int] = {}
        self._values: dict[str, int] = {}
        self._new: list[bytes] = []
        self._event_end = integer(_SEQUENCE, 1) + integer(_FLAGS, _NEEDS_STATE)
        clocks = [
            message(1, integer(1, clock), integer(2, start_ns)) for clock in (_BOOTTIME, _REALTIME)
        ]
        self._packet(message(_CLOCK_SNAPSHOT, *clocks), integer(_SEQUENCE, 1))
        self._packet(integer(_SEQUENCE, 1), integer(_FLAGS, _STATE_CLEARED))

    def process(self, pid: int, name: str) -> int:
        """Make the track of a process, which groups those of its threads; return its number."""
        return self._described(message(3, integer(1, pid), text(6, name)))

    def thread(self, process: int, pid: int, tid: int, name: str) -> int:
        """Make the track of a thread; return its number."""
        own = message(4, integer(1, pid), integer(2, tid), text(5, name))
        return self._described(integer(5, process), own)

    def track(self, name: str, parent: int | None = None) -> int:
        """Make any other track; those of one name and parent are shown as one."""
        above = [integer(5, parent)] if parent is not None else []
        return self._described(text(2, name), *above)

    def counter(self, name: str) -> int:
        """Make the track of a number; return its number."""
        return self._described(text(2, name), message(8, integer(3, _UNIT_COUNT)))

    def open(
        self, track: int, at_ns: int, name: str, args: Args = NOTHING, flows: Sequence[int] = ()
    ) -> None:
        """Begin a slice; ``flows`` join it to the other slices with one of these numbers."""
        parts = [
            integer(9, _BEGIN),
            integer(11, track),
            integer(10, self._interned(name, self._names, _EVENT_NAMES)),
        ]
        parts += [
            message(4, self._arg(key, value)) for key, value in args.items() if value is not None
        ]
        parts += [fixed64(47, flow) for flow in flows]
        self._event(at_ns, *parts)

    def close(self, track: int, at_ns: int) -> None:
        """End the innermost slice of a track."""
        self._event(at_ns, integer(9, _END), integer(11, track))

    def count(self, track: int, at_ns: int, number: int) -> None:
        """Set the value of a counter from this time on."""
        self._event(at_ns, integer(9, _COUNT), integer(11, track), integer(30, number))

    def _described(self, *parts: bytes) -> int:
        self._tracks += 1
        descriptor = message(_DESCRIPTOR, integer(1, self._tracks), *parts)
        self._packet(descriptor, integer(_SEQUENCE, 1))
        return self._tracks

    def _arg(self, name: str, value: int | str) -> bytes:
        named = integer(1, self._interned(name, self._arg_names, _ARG_NAMES))
        if isinstance(value, bool):
            return named + integer(2, value)
        if isinstance(value, int):
            return named + _INT + varint(value)
        if value not in self._values and len(self._values) >= MOST_VALUES:
            return named + text(6, value)
        return named + integer(17, self._interned(value, self._values, _ARG_VALUES))

    def _interned(self, name: str, known: dict[str, int], kind: int) -> int:
        """Return the number of a text; a new text is written with the next packet."""
        if (number := known.get(name)) is None:
            number = known[name] = len(known) + 1
            self._new.append(message(kind, integer(1, number), text(2, name)))
        return number

    def _event(self, at_ns: int, *parts: bytes) -> None:
        event = message(_TRACK_EVENT, *parts)
        new = b""
        if self._new:
            new = message(_INTERNED, *self._new)
            self._new.clear()
        self._packet(_AT, varint(at_ns), event, new, self._event_end)

    def _packet(self, *parts: bytes) -> None:
        self._file.write(message(_PACKET, *parts))
