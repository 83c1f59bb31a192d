"""Times of strace's lines: with -ttt, -tt, -t, -r, or without times."""

import re
from collections.abc import Iterable, Mapping
from enum import Enum
from pathlib import Path

from spoolscope.tracers.strace.lines import DETACHED, RESUMED, UNFINISHED

SECOND = 10**9
DAY = 86_400 * SECOND
STEP_NS = 1000
"""Distance of lines whose times do not determine their order."""
TOLERATED_NS = SECOND // 10
"""A busy machine may keep strace from working for so long between a line's time and its call."""
TIME = (
    r"(?P<unix>\d{9,10}(?:\.\d{3,9})?)|(?P<day>\d\d:\d\d:\d\d(?:\.\d{3,9})?)"
    r"|(?P<relative>\d{1,8}\.\d{3,9})"
)
_MAY_LAST = re.compile(r"\w+\(")  # the other lines are of a moment
_DURATION = re.compile(r"<(\d{1,9})\.(\d{1,9})>\s*$")


class Kind(Enum):
    """The origin of the times of a file; the values are those of meta.json, and of TIME."""

    UNIX = "unix"
    DAY = "day"
    RELATIVE = "relative"
    NONE = "none"


class Clock:
    """Turns the times of the lines of a file into nanoseconds since the epoch.

    Args:
        kind: Origin of the times.
        in_order: The times do not determine the order of lines. Then each line is later than the
            one before, by the duration of the call of that line.
        base_ns: Origin as a time: the epoch, the midnight before the first line, or that line.
        certain: The lines are of all threads, so they are in the order in which strace wrote them.
    """

    def __init__(self, kind: Kind, *, in_order: bool, base_ns: int, certain: bool = False) -> None:
        self.kind, self._in_order = kind, in_order
        self._steps = Steps() if certain and not in_order else None
        self._base_ns = self._now_ns = base_ns
        self._days = Days()
        self._unfinished: dict[int, int] = {}

    @property
    def set_back(self) -> int:
        """How often the clock was set back so far."""
        return self._steps.n if self._steps else 0

    def at(self, stamp: str | None, tid: int, text: str) -> int:
        """Return the time of the next line.

        Args:
            stamp: Its time, as text.
            tid: Its thread.
            text: Rest of the line; at its end there may be a duration (-T).
        """
        stamp_ns = nanoseconds(stamp) if stamp else 0
        if self.kind is Kind.RELATIVE:
            self._base_ns = stamp_ns = self._base_ns + stamp_ns
        elif self.kind is Kind.DAY:
            stamp_ns = self._base_ns + self._days.since_first_midnight(stamp_ns)
        if self._steps:
            return self._steps.over(stamp_ns, tid, text)
        if not self._in_order:
            return stamp_ns
        return self._after_all(max(stamp_ns, self._now_ns + STEP_NS), tid, text)

    def _after_all(self, line_ns: int, tid: int, text: str) -> int:
        if text.startswith(RESUMED):
            begun_ns = self._unfinished.pop(tid, line_ns)
            line_ns = max(line_ns, begun_ns + _duration_ns(text))
        self._now_ns = line_ns
        if text.endswith((UNFINISHED, DETACHED)):
            self._unfinished[tid] = line_ns
        elif not text.startswith(RESUMED):
            self._now_ns += _duration_ns(text)
        return line_ns


class Steps:
    """Leads times over the moments at which the clock was set back, so that they go on there.

    strace writes a line, with its time, when a call begins. With -z it writes it at the end of the
    call, but with the time of the begin; then it writes no unfinished calls. So a call cannot have
    ended before another of a line above began, and no time of a thread is before its last one. A
    step back that does not show, or of less than TOLERATED_NS, changes nothing.

    Attributes:
        n: Number of steps back.
    """

    def __init__(self) -> None:
        self.n = self._shift_ns = self._latest_ns = 0
        self._at_begin = False  # lines are written at the begin of calls for certain
        self._threads: dict[int, int] = {}
        self._before: tuple[int, str] = (0, "")

    def over(self, stamp_ns: int, tid: int, text: str) -> int:
        """Return the time of the next line; the arguments are those of Clock.at."""
        self._at_begin |= text.endswith(UNFINISHED)
        line_ns = stamp_ns + self._shift_ns
        back_ns = max(self._latest_ns, self._threads.get(tid, 0)) - line_ns
        if back_ns > TOLERATED_NS and self._is_step(line_ns, tid, text):
            before_ns, before = self._before
            whole = not before.startswith(RESUMED)
            ended_ns = before_ns + _duration_ns(before) * whole
            self._shift_ns += max(self._latest_ns, ended_ns) + STEP_NS - line_ns
            line_ns = stamp_ns + self._shift_ns
            self.n += 1
        self._threads[tid] = line_ns
        self._latest_ns = max(self._latest_ns, line_ns)
        self._before = line_ns, text
        return line_ns

    def _is_step(self, line_ns: int, tid: int, text: str) -> bool:
        if self._threads.get(tid, 0) - line_ns > TOLERATED_NS:
            return True
        if self._at_begin or not _MAY_LAST.match(text):
            return True
        lasted_ns = _duration_ns(text)
        return lasted_ns > 0 and self._latest_ns - line_ns - lasted_ns > TOLERATED_NS


class Days:
    """Counts midnights: a time of day that goes back by half a day or more is on the next day."""

    def __init__(self) -> None:
        self._midnights, self._before_ns = 0, 0

    def since_first_midnight(self, time_ns: int) -> int:
        """Return a time of day as one since the midnight before the first."""
        self._midnights += time_ns < self._before_ns - DAY // 2
        self._before_ns = time_ns
        return self._midnights * DAY + time_ns


def bases(stamps: Mapping[Path, Iterable[str]], kind: Kind) -> dict[Path, int]:
    """Return the origin of the times of each file, ns since the epoch.

    Times of day have no date: the longest file is assumed to end on the day of its modification
    time, and the others to be as close to it as possible. Files without absolute times begin at
    their modification time.

    Args:
        stamps: The times of each file.
        kind: Origin of the times of all files.
    """
    if kind is Kind.UNIX:
        return dict.fromkeys(stamps, 0)
    changed = {file: file.stat().st_mtime_ns // SECOND * SECOND for file in stamps}
    if kind is not Kind.DAY:
        return changed
    spans = {file: _span(times) for file, times in stamps.items()}
    longest = max(spans, key=lambda file: spans[file][1] - spans[file][0])
    first, last = spans[longest]
    base_ns = (changed[longest] // DAY - last // DAY) * DAY

    def midnights(span: tuple[int, int]) -> int:
        """Return the number of days after the longest file's first at which a file is closest."""
        apart = [
            (max(span[0] + days * DAY - last, first - span[1] - days * DAY, 0), days)
            for days in range(-1, last // DAY + 2)
        ]
        return min(apart)[1]

    return {file: base_ns + DAY * midnights(span) for file, span in spans.items()}


def _span(stamps: Iterable[str]) -> tuple[int, int]:
    days = Days()
    first = last = None
    for stamp in stamps:
        last = days.since_first_midnight(nanoseconds(stamp))
        first = last if first is None else first
    return first or 0, last or 0


def nanoseconds(stamp: str) -> int:
    """Parse 12, 12.000345 or 16:02:01.000345."""
    whole, _, part = stamp.partition(".")
    seconds = 0
    for number in whole.split(":"):
        seconds = 60 * seconds + int(number)
    return seconds * SECOND + int(part.ljust(9, "0"))


def _duration_ns(text: str) -> int:
    found = _DURATION.search(text)
    return int(found[1]) * SECOND + int(found[2].ljust(9, "0")) if found else 0
