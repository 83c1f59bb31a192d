"""The tables of the screen of top, with their columns and sort orders."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from spoolscope.analysis.causes import CAUSES
from spoolscope.analysis.top import Interval
from spoolscope.analysis.wording import count, duration, percent
from spoolscope.traces.text import shown

Row = Any


@dataclass(frozen=True)
class Column:
    """One column of a table.

    Attributes:
        title: Title of the column.
        width: Cells; 0 is the rest of the line. Negative: aligned to the left.
        text: Function for the text of a cell.
        rank: Sort key of rows, the largest first; texts in ascending order.
    """

    title: str
    width: int
    text: Callable[[Row], str]
    rank: Callable[[Row], Any]


@dataclass(frozen=True)
class View:
    """One table: the key that shows it, its columns and rows."""

    key: str
    title: str
    columns: Sequence[Column]
    rows: Callable[[Interval], Sequence[Row]]
    sorted_by: str

    def column(self, title: str) -> Column:
        """Return the column of that title."""
        return next(column for column in self.columns if column.title == title)


def mostly(causes: Mapping[str, int], time_ns: int) -> str:
    """Return the largest cause and its share; empty without any time."""
    for cause, ns in list(causes.items())[:1]:
        if time_ns:
            return f"{CAUSES[cause].label} {100 * ns / time_ns:.0f} %"
    return ""


def _number(title: str, width: int, value: str, wording: Callable[[Any], str] = count) -> Column:
    return Column(
        title, width, lambda row: wording(getattr(row, value)), lambda row: -getattr(row, value)
    )


def _text(title: str, width: int, value: Callable[[Row], str]) -> Column:
    return Column(title, width, lambda row: shown(value(row)), value)


_TIMES = (
    _number("CALLS", 8, "calls"),
    _number("TIME", 8, "time_ns", duration),
    _number("BLOCKED", 8, "blocked_ns", duration),
    _number("LONGEST", 8, "max_ns", duration),
)
_MOSTLY = _text("MOSTLY", 24, lambda row: mostly(row.causes, row.time_ns))


@dataclass(frozen=True)
class _Cause:
    name: str
    ns: int
    share: float
    most: str


def _causes(found: Interval) -> list[_Cause]:
    total = sum(found.causes.values())
    return [
        _Cause(CAUSES[cause].label, ns, ns / total, _most(found, cause))
        for cause, ns in found.causes.items()
    ]


def _most(found: Interval, cause: str) -> str:
    """Return the process with the most time in this cause."""
    most = max(found.processes, key=lambda process: process.causes.get(cause, 0))
    return f"{most.comm} ({most.pid}) {duration(most.causes.get(cause, 0))}"


_KINDS = {"jbd2_commit": "jbd2", "xfs_log_write": "xfs log", "btrfs_log_commit": "btrfs log"}

VIEWS = (
    View(
        "p",
        "processes",
        (
            Column("PID", -7, lambda row: str(row.pid), lambda row: row.pid),
            _text("COMM", -16, lambda row: row.comm),
            *_TIMES[:3],
            _number("COMMITS", 7, "commits"),
            _text("MOSTLY", 0, lambda row: mostly(row.causes, row.time_ns)),
        ),
        lambda found: found.processes,
        "TIME",
    ),
    View(
        "m",
        "mailboxes",
        (_text("MAILBOX", 0, lambda row: row.name), *_TIMES, _MOSTLY),
        lambda found: found.mailboxes,
        "TIME",
    ),
    View(
        "f",
        "files",
        (_text("FILE", 0, lambda row: row.name), *_TIMES[:3], _MOSTLY),
        lambda found: found.files,
        "TIME",
    ),
    View(
        "c",
        "causes",
        (
            _text("CAUSE", -20, lambda row: row.name),
            _number("TIME", 8, "ns", duration),
            _number("SHARE", 8, "share", percent),
            _text("MOST OF IT", 0, lambda row: row.most),
        ),
        _causes,
        "TIME",
    ),
    View(
        "j",
        "commits",
        (
            _number("LENGTH", 8, "dur_ns", duration),
            _text("KIND", -12, lambda row: _KINDS.get(row.kind, row.kind)),
            Column(
                "BLOCKS",
                8,
                lambda row: "-" if row.blocks is None else count(row.blocks),
                lambda row: -(row.blocks or 0),
            ),
            _text("TRIGGER", -10, lambda row: row.trigger),
            _text("ASKED FOR BY", 0, lambda row: f"{row.comm} ({row.pid})" if row.comm else "-"),
        ),
        lambda found: found.longest_commits,
        "LENGTH",
    ),
)
