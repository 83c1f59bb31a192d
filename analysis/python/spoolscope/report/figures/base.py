"""Common parts of figures: layout, axes in human units, and bars of causes.

Text and grid colours are set in the page, as they depend on its light or dark mode.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import plotly.graph_objects as go

from spoolscope.analysis.causes import CAUSES, charged
from spoolscope.analysis.wording import count, duration, size
from spoolscope.report.palette import CAUSE_INKS, PART_INKS, Ink

FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif"
ROW_HEIGHT = 34

Rows = Sequence[tuple[str, Mapping[str, float]]]
"""Bars of causes: (label, {cause: value})."""


@dataclass(frozen=True)
class Exact:
    """A number in a table cell: as text, and for a CSV file in ns, bytes or pieces."""

    text: str
    value: int
    unit: str = ""


def time_cell(ns: float | None) -> Exact | str:
    """Return the cell of a time in ns, "-" for None."""
    return "-" if ns is None else Exact(duration(ns), round(ns), "ns")


def count_cell(n: int) -> Exact:
    """Return the cell of a count."""
    return Exact(count(n), n)


def bytes_cell(n: int) -> Exact:
    """Return the cell of a number of bytes."""
    return Exact(size(n), n, "bytes")


@dataclass(frozen=True)
class Table:
    """A data table: heads (">" before one: right-aligned, "~": may break anywhere) and rows."""

    heads: Sequence[str]
    rows: Sequence[Sequence[str | Exact]]


@dataclass(frozen=True)
class Figure:
    """A figure with its texts and its table.

    Attributes:
        key: Its id in the page.
        title: Its subject.
        finding: One sentence for readers who cannot see it.
        caption: n, method, and missing data.
        table: The same numbers as a table.
        plot: The Plotly figure.
        folded: True if it is opened, and drawn, on a click.
    """

    key: str
    title: str
    finding: str
    caption: str
    table: Table
    plot: go.Figure = field(repr=False)
    folded: bool = False

    @property
    def legend(self) -> list[tuple[str, str]]:
        """Labels and CSS backgrounds of named traces; causes in their fixed order."""
        inks = {
            trace.legendgroup or trace.name: (trace.name, _css(trace))
            for trace in self.plot.data
            if trace.name
        }
        order = list(CAUSES)
        found = sorted(inks, key=lambda key: order.index(key) if key in CAUSES else len(order))
        return [inks[key] for key in found] if len(found) > 1 else []


def _css(trace: Any) -> str:
    if ink := (CAUSE_INKS | PART_INKS).get(trace.legendgroup):
        return ink.css
    line = trace.type == "scatter" and trace.mode == "lines"
    return str(trace.line.color if line else trace.marker.color)


def layout(plot: go.Figure, height: int, *, titles: bool = False) -> go.Figure:
    """Give a figure the common look; the page draws its legend."""
    plot.update_layout(
        height=height,
        minreducedheight=20,  # below its default, 64, labels of the axis would be cut off
        margin={"l": 8, "r": 12, "t": 30 if titles else 10, "b": 8},
        font={"family": FONT, "size": 13},
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        showlegend=False,
        hoverlabel={"font": {"family": FONT}},
        bargap=0.3,
    )
    plot.update_xaxes(automargin=True, zeroline=False)
    plot.update_yaxes(automargin=True, zeroline=False)
    plot.update_annotations(font_size=13)
    return plot


def duration_ticks(low_ns: float, high_ns: float) -> dict[str, object]:
    """Return a log axis from low to high with ticks like 10 µs and 1 ms, two decades apart."""
    first = math.floor(math.log10(max(low_ns, 1)))
    last = math.ceil(math.log10(max(high_ns, 10)))
    exponents = range(first + first % 2, max(last, first + 1) + 1, 2)
    return {
        "type": "log",
        "range": [first - 0.3, max(last, first + 1) + 0.3],
        "tickvals": [10.0**e for e in exponents],
        "ticktext": [power_of_ten(e) for e in exponents],
    }


def power_of_ten(exponent: int) -> str:
    """Return 10^exponent ns as text, e.g. "100 µs"."""
    unit = min(max(exponent, 0) // 3, 3)
    return f"{10 ** (exponent - 3 * unit):g} {('ns', 'µs', 'ms', 's')[unit]}"


def seconds_axis(values_ns: float) -> tuple[float, str]:
    """Return the divisor and unit that suit a linear axis up to ``values_ns``."""
    for scale, unit in ((1e9, "s"), (1e6, "ms"), (1e3, "µs")):
        if values_ns >= 2 * scale:
            return scale, unit
    return 1.0, "ns"


def drawn(rows: Rows) -> list[tuple[str, dict[str, float]]]:
    """Return the bars without the waits of programs for programs; empty bars are left out."""
    kept = ((label, charged(causes)) for label, causes in rows)
    return [(label, causes) for label, causes in kept if any(causes.values())]


def shown_causes(rows: Rows, least: float = 0.005) -> list[str]:
    """Return the causes that are at least 0.5 % of some bar; the tables have all."""
    shown = []
    for cause in charged(dict.fromkeys(CAUSES, 0.0)):
        shares = [causes.get(cause, 0) / max(sum(causes.values()), 1) for _, causes in rows]
        if max(shares, default=0) >= least:
            shown.append(cause)
    return shown


def ink_marker(ink: Ink) -> dict[str, object]:
    """Return the marker of bars in an ink."""
    return {
        "color": ink.colour,
        "line": {"width": 0},
        "pattern": {
            "shape": ink.pattern,
            "fillmode": "overlay",
            "fgcolor": "rgba(255,255,255,.75)",
            "size": 6,
            "solidity": 0.35,
        },
    }


def cause_bar(cause: str, **options: object) -> go.Bar:
    """Return a horizontal or vertical bar trace in the ink of a cause."""
    marker = ink_marker(CAUSE_INKS[cause])
    return go.Bar(name=CAUSES[cause].label, legendgroup=cause, marker=marker, **options)
