"""Block events as text: what blkparse prints by default, and ftrace's ``trace`` and ``trace_pipe``.

The output of ftrace may come from the ``blk`` tracer or from the events ``block:block_*``. Other
lines are counted: those of other events, and those that are not understood.
"""

import re
import struct
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from spoolscope.tracers.blktrace import records
from spoolscope.tracers.blktrace.records import Event

ACTIONS = {
    "Q": records.QUEUE, "M": records.BACKMERGE, "F": records.FRONTMERGE, "G": records.GETRQ,
    "S": records.SLEEPRQ, "R": records.REQUEUE, "D": records.ISSUE, "C": records.COMPLETE,
    "P": records.PLUG, "U": records.UNPLUG_IO, "UT": records.UNPLUG_TIMER, "I": records.INSERT,
    "X": records.SPLIT, "B": records.BOUNCE, "A": records.REMAP,
}  # fmt: skip
"""Actions by blkparse's letters."""
_TRACEPOINTS = {
    "block_bio_queue": "Q", "block_bio_backmerge": "M", "block_bio_frontmerge": "F",
    "block_getrq": "G", "block_rq_insert": "I", "block_rq_issue": "D", "block_rq_requeue": "R",
    "block_rq_complete": "C", "block_plug": "P", "block_unplug": "U", "block_split": "X",
    "block_bio_remap": "A", "block_rq_remap": "A",
}  # fmt: skip
MESSAGE = "m"

# ftrace's option blk_classic makes the same lines, without their numbers.
_BLKPARSE = re.compile(
    r"\s*(\d+),(\d+)\s+(\d+)\s+(\d+\s+)?(\d+)\.(\d{9})\s+(\d+)\s+([A-Z]{1,2}|m)\s+([A-Z]+)(?:\s+(.*))?"
)
_FTRACE = re.compile(
    r"\s*(.+)-(\d+)\s+(?:\([-\s\d]+\)\s+)?\[(\d+)\]\s+(?:[^\s\d]\S*\s+|\d\S*[a-zA-Z.]\S*\s+)?"
    r"(\d+)\.(\d{6}|\d{9}):\s+(.*)"
)
_BLK = re.compile(r"(\d+),(\d+)\s+([A-Z]{1,2}|m)\s+([A-Z]+)(?:\s+(.*))?")
_POINT = re.compile(r"(block_\w+): (.*)")
_POINT_FIELDS = re.compile(r"(\d+),(\d+) ([A-Z]+) (?:\d+ )?(?:\(.*?\) )?(\d+.*)")
_UNPLUG = re.compile(r"\[(.*)\](?: (\d+))?")
_RANGE = re.compile(r"(\d+) \+ (\d+)(?: \(\s*\d+\))?(?: [^\[\]]*)? \[(.*)\]")
_EMPTY = re.compile(r"(?:(\d+)(?: \(\s*\d+\))? )?\[(.*)\]")
_REMAP = re.compile(r"(\d+) \+ (\d+) <- \((\d+),(\d+)\) (\d+)")
_SPLIT = re.compile(r"\d+ / \d+ \[.*\]")
_PASSTHROUGH = re.compile(r"(?:\d+ )?\(([0-9a-f]{2} ?)*(?:\.\.)? ?\) \[.*\]")
_LOST = re.compile(r"CPU:\d+ \[LOST (\d+) EVENTS\]")
_SKIPS = re.compile(r"Skips: +(\d+) forward")
# blkparse prints sums at its end: for each CPU, and in total.
_SUMMARY = re.compile(
    r"\s*$|(CPU ?\d+|Total) \(.*\):|\s*(Reads|Writes|Read|Write|PC Reads|PC Writes|IO unplugs|"
    r"Discards?|Timer unplugs|Merge|Allocations|In-flight|Throughput|Events|Skips|Input file)\b|"
    r"\s*\S+ (Queued|Dispatches|Requeued|Completed|Merges|depth)"
)


_MOST_SECTORS, _MOST_NS = 1 << 53, 1 << 61
"""No disk is larger and no clock is later: a line with larger values is damaged."""
_NOWHERE = (1 << 64) - 1
"""Sector that block_rq_complete prints for a cache flush, which has none."""


class Names:
    """Names of threads at times: execve gives another, and the kernel reuses tids."""

    def __init__(self) -> None:
        self._said: dict[int, list[tuple[int, bytes]]] = {}
        self._sorted: set[int] = set()

    def add(self, tid: int, time_ns: int, name: bytes) -> None:
        """Add the name of a thread at a time."""
        said = self._said.setdefault(tid, [])
        if len(said) > 1 and said[-2][1] == said[-1][1] == name and said[-1][0] <= time_ns:
            said.pop()  # between two equal names nothing changes
        said.append((time_ns, name))
        self._sorted.discard(tid)

    def at(self, tid: int, time_ns: int) -> bytes | None:
        """Return the last name until a time, else the first; None if there is none."""
        said = self._said.get(tid)
        if not said:
            return None
        if tid not in self._sorted:
            said.sort()
            self._sorted.add(tid)
        at = bisect_right(said, time_ns, key=lambda one: one[0])
        return said[max(at - 1, 0)][1]


@dataclass
class TextEvents:
    """The events of some text, in the order of their times; iterating gives them.

    Attributes:
        names: Names of the threads that the text names.
        lines: How many lines there were.
        not_understood: Lines that are not an event, a sum or a comment.
        other: Lines of another kind: other events, messages, passthrough commands.
        lost: Number of lost events that the text itself states.
        form: "blkparse" or "ftrace", by its first event.
    """

    names: Names = field(default_factory=Names)
    lines: int = 0
    not_understood: int = 0
    other: int = 0
    lost: int = 0
    form: str = ""
    _events: list[Event] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self._events)

    def name(self, tid: int, time_ns: int) -> bytes | None:
        """Return the name of a thread at a time, CLOCK_MONOTONIC."""
        return self.names.at(tid, time_ns)

    def __iter__(self) -> Iterator[Event]:
        return iter(sorted(self._events, key=lambda event: event.time_ns))

    def read(self, lines: Iterable[str]) -> None:
        """Take lines, of one file after the other."""
        for line in lines:
            self.lines += 1
            self._line(line.rstrip())

    def _line(self, line: str) -> None:
        if found := _BLKPARSE.fullmatch(line):
            major, minor, cpu, number, seconds, ns, tid, action, rwbs, rest = found.groups()
            time_ns = int(seconds) * 1_000_000_000 + int(ns)
            self.form = self.form or ("blkparse" if number else "ftrace")
            self._event(time_ns, (major, minor), action, rwbs, rest or "", tid, cpu)
        elif found := _FTRACE.fullmatch(line):
            _, tid, cpu, seconds, fraction, said = found.groups()
            time_ns = int(seconds) * 1_000_000_000 + int(fraction.ljust(9, "0"))
            self._said(time_ns, said, tid, cpu)
        elif (found := _LOST.search(line)) or (found := _SKIPS.match(line)):
            self.lost += int(found[1])
        elif not line.startswith("#") and not _SUMMARY.match(line):
            self.not_understood += 1

    def _said(self, time_ns: int, said: str, tid: str, cpu: str) -> None:
        """Read the text of one event of ftrace."""
        if found := _BLK.fullmatch(said):
            major, minor, action, rwbs, rest = found.groups()
        elif found := _POINT.fullmatch(said):
            action = _TRACEPOINTS.get(found[1], "")
            if action in ("P", "U"):  # they name no disk
                self.other += 1
                return
            fields = _POINT_FIELDS.fullmatch(found[2])
            if not action or not fields:
                self.other += not action
                self.not_understood += bool(action)
                return
            major, minor, rwbs, rest = fields.groups()
        else:
            self.other += 1
            return
        self.form = self.form or "ftrace"
        self._event(time_ns, (major, minor), action, rwbs, rest or "", tid, cpu)

    def _event(
        self,
        time_ns: int,
        dev: tuple[str, str],
        action: str,
        rwbs: str,
        rest: str,
        tid: str,
        cpu: str,
    ) -> None:
        if action not in ACTIONS or _SPLIT.fullmatch(rest) or _PASSTHROUGH.fullmatch(rest):
            self.other += action == MESSAGE or action in ACTIONS
            self.not_understood += action != MESSAGE and action not in ACTIONS
            return
        place = _place(action, rest)
        if place is None:
            self.not_understood += 1
            return
        sector, sectors, said, extra = place
        major, minor = map(int, dev)
        fits = major < 1 << 12 and minor < 1 << 20 and max(int(tid), int(cpu)) < 1 << 31
        if not fits or max(sector, sectors) > _MOST_SECTORS or time_ns > _MOST_NS:
            self.not_understood += 1
            return
        error = 0
        if action == "C":
            error = int(said) if re.fullmatch(r"-?\d+", said) else 0
        elif said:
            self.names.add(int(tid), time_ns, said.encode())
        number = major << 20 | minor
        self._events.append(
            Event(
                time_ns,
                number,
                sector,
                sectors * 512,
                ACTIONS[action],
                category(rwbs),
                int(tid),
                int(cpu),
                error,
                extra,
            )
        )


def _place(action: str, rest: str) -> tuple[int, int, str, bytes] | None:
    """Return first sector, sectors, text in brackets, and extra data of the action."""
    if action == "A":
        if not (found := _REMAP.fullmatch(rest)):
            return None
        sector, sectors, major, minor, from_sector = map(int, found.groups())
        if major >= 1 << 12 or minor >= 1 << 20 or from_sector > _MOST_SECTORS:
            return None
        return sector, sectors, "", struct.pack(">IIQ", major << 20 | minor, 0, from_sector)
    if action in ("P", "U", "UT"):
        found = _UNPLUG.fullmatch(rest)
        return (0, 0, found[1], b"") if found else None
    if found := _RANGE.fullmatch(rest):
        sector, sectors, said = int(found[1]), int(found[2]), found[3]
    elif found := _EMPTY.fullmatch(rest):
        sector, sectors, said = int(found[1] or 0), 0, found[2]
    else:
        return None
    return 0 if sector == _NOWHERE and not sectors else sector, sectors, said, b""


def category(rwbs: str) -> int:
    """Return the bits of an operation in blkparse's letters."""
    bits, rest = 0, rwbs
    if rest.startswith("F"):
        bits, rest = records.FLUSH, rest[1:]
    kinds = {"R": records.READ, "W": records.WRITE, "D": records.DISCARD, "N": records.READ}
    bits |= kinds.get(rest[:1], 0)
    for letter in rest[1:]:
        bits |= {
            "F": records.FUA, "A": records.AHEAD, "S": records.SYNC, "M": records.META
        }.get(letter, 0)  # fmt: skip
    return bits
