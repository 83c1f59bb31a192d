"""Waterfalls of slow calls for the template: bars on tracks, without JavaScript."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from spoolscope.analysis.spans import Span
from spoolscope.analysis.waterfalls import Lane, Waterfall
from spoolscope.analysis.wording import duration, fitting
from spoolscope.report.figures.base import Exact, count_cell, time_cell

NAMES = {
    "own": "the call",
    "holder": "kept waiting",
    "meanwhile": "meanwhile",
    "commit": "the commit",
    "request": "block requests",
}
"""Names of tracks, by kind of lane."""

LONGEST = 200
"""Characters of a path."""
LABELLED = 12.0
"""Least width of a bar with a label, per cent."""
TICKS = 4


@dataclass(frozen=True)
class Bar:
    """A part of a track: begin and width in per cent, a key of an ink, words, and a label in it."""

    left: float
    width: float
    ink: str
    words: str
    label: str


@dataclass(frozen=True)
class Track:
    """One lane: its name, "" if it continues the one above, and a sentence on it."""

    name: str
    sentence: str
    bars: Sequence[Bar]


@dataclass(frozen=True)
class Fall:
    """One call: the parts of its title, the tracks below, and the same data as table rows."""

    number: int
    at: str
    took: str
    what: str
    path: str
    causes: dict[str, int]
    ticks: Sequence[tuple[float, str]]
    tracks: Sequence[Track]
    rows: Sequence[Sequence[str | Exact]]
    left_out: int


@dataclass(frozen=True)
class Falls:
    """The slowest calls of a trace, one below the other."""

    key: str
    title: str
    finding: str
    caption: str
    falls: Sequence[Fall]

    heads = ("track", ">from", ">took", "~what", ">spans")


def falls_of(calls: Iterable[Waterfall]) -> list[Fall]:
    """Return the calls as they are drawn."""
    return [_fall(number, call) for number, call in enumerate(calls, start=1)]


def outcome(syscall: str, errno: int) -> str:
    """Return a call with its error, if it had one."""
    return f"{syscall} (errno {errno})" if errno else syscall


def _fall(number: int, call: Waterfall) -> Fall:
    whole = max(call.dur_ns, 1)
    tracks, rows, kind = [], [], ""
    for lane in call.lanes:
        name = NAMES[lane.kind] if lane.kind != kind or lane.kind == "meanwhile" else ""
        kind = lane.kind
        tracks.append(
            Track(name, _sentence(lane), [b for s in lane.spans for b in _bars(s, whole)])
        )
        rows += [
            [NAMES[lane.kind], time_cell(span.from_ns), time_cell(span.ns), _said(span),
             count_cell(span.n)]
            for span in lane.spans
        ]  # fmt: skip
    return Fall(
        number=number,
        at=f"{call.at_ns / 1e9:.3f} s",
        took=duration(call.dur_ns),
        what=f"{outcome(call.syscall, call.errno)} of {call.comm} {call.pid}",
        path=fitting(call.path or "", LONGEST),
        causes=call.causes,
        ticks=[(100 * k / TICKS, duration(whole * k / TICKS)) for k in range(TICKS + 1)],
        tracks=tracks,
        rows=rows,
        left_out=sum(lane.left_out for lane in call.lanes),
    )


def _said(span: Span) -> str:
    return span.words or "nothing further is known"


def _sentence(lane: Lane) -> str:
    longest = max(lane.spans, key=lambda span: span.ns, default=None)
    if longest is None:
        return "nothing"
    return f"{len(lane.spans)} spans, the longest {duration(longest.ns)}: {_said(longest)}"


def _bars(span: Span, whole: int) -> Iterable[Bar]:
    """Yield the bars of a span, one for each cause, as wide as its share."""
    words = f"{duration(span.ns)} from {duration(span.from_ns)} on: {_said(span)}"
    at = span.from_ns
    total = sum(span.causes.values()) or 1
    for cause, ns in span.causes.items():
        width = 100 * span.ns * ns / total / whole
        label = _said(span) if width >= LABELLED else ""
        yield Bar(100 * at / whole, width, cause, words, label)
        at += round(span.ns * ns / total)
