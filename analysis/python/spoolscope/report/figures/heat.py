"""Latency of calls over time as a heat map, with commits, flushes and freezes below."""

import math

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from spoolscope.analysis.bins import LEVELS_A_DECADE, MARKS, Bins
from spoolscope.analysis.wording import duration
from spoolscope.report.figures.base import layout, power_of_ten

LEVEL_HEIGHT, MARK_HEIGHT, REST = 13, 22, 70
LEAST_HEIGHT = 150

# Placeholders: the page replaces them by the scales of its style, light or dark.
SCALES = {"heat": [[0, "#dbe9f4"], [1, "#08306b"]], "mark": [[0, "#f6e3d7"], [1, "#D55E00"]]}


def level_name(level: int) -> str:
    """Return the range of lengths of calls of a level."""
    low, high = (10 ** ((level + k) / LEVELS_A_DECADE) for k in (0, 1))
    return f"{duration(low)} to {duration(high)}"


def heat_map(bins: Bins) -> go.Figure:
    """Return calls by length and time (colour: their number, log), with the marks below."""
    of_levels = max(LEAST_HEIGHT, LEVEL_HEIGHT * len(bins.levels))
    of_marks = MARK_HEIGHT * max(len(bins.marks), 1)
    plot = make_subplots(
        rows=2,
        cols=1,
        shared_xaxes=True,
        row_heights=[of_levels, of_marks],
        vertical_spacing=12 / (of_levels + of_marks + REST),
    )
    width = bins.bin_ns / 1e9
    at = {"x0": width / 2, "dx": width}
    plot.add_trace(_levels(bins, at), row=1, col=1)
    # A heat map cannot be selected: these invisible points make brushing possible.
    middle = level_name(bins.levels[len(bins.levels) // 2]) if bins.levels else ""
    plot.add_trace(
        go.Scatter(
            x=[(k + 0.5) * width for k in range(bins.n)],
            y=[middle] * bins.n,
            mode="markers",
            marker={"opacity": 0},
            hoverinfo="skip",
            selected={"marker": {"opacity": 0}},
            unselected={"marker": {"opacity": 0}},
            meta="brush",
        ),
        row=1,
        col=1,
    )
    if bins.marks:
        plot.add_trace(_marks(bins, at), row=2, col=1)
    layout(plot, of_levels + of_marks + REST)
    plot.update_layout(dragmode="select", selectdirection="h")
    plot.update_xaxes(range=[0, bins.n * width], showgrid=False, ticksuffix=" s", fixedrange=True)
    plot.update_yaxes(showgrid=False, fixedrange=True)
    ticks = [k for k in bins.levels if k % LEVELS_A_DECADE == 0]
    plot.update_yaxes(
        type="category",
        tickvals=[level_name(k) for k in ticks],
        ticktext=[power_of_ten(k // LEVELS_A_DECADE) for k in ticks],
        row=1,
    )
    plot.update_yaxes(autorange="reversed", row=2)
    return plot


def _levels(bins: Bins, at: dict[str, float]) -> go.Heatmap:
    most = max((n for row in bins.counts for n in row), default=1)
    ticks = [10**k for k in range(int(math.log10(max(most, 1))) + 1)]
    return go.Heatmap(
        z=[[round(math.log10(n), 2) if n else None for n in row] for row in bins.counts],
        y=[level_name(level) for level in bins.levels],
        customdata=bins.counts,
        hovertemplate="%{x:.6~g} s: %{customdata:,} calls of %{y}<extra></extra>",
        colorscale=SCALES["heat"],
        zmin=0,
        zmax=max(math.log10(max(most, 1)), 1),
        colorbar={
            "title": {"text": "calls", "side": "top", "font": {"size": 11}},
            "tickvals": [math.log10(k) for k in ticks],
            "ticktext": [f"{k:,}" for k in ticks],
            "thickness": 10,
            "outlinewidth": 0,
            "xpad": 4,
        },
        meta="heat",
        **at,
    )


def _marks(bins: Bins, at: dict[str, float]) -> go.Heatmap:
    return go.Heatmap(
        z=[
            [round(ns / bins.bin_ns, 4) or None for ns in mark.covered_ns]
            for mark in bins.marks.values()
        ],
        y=[MARKS[name] for name in bins.marks],
        customdata=[mark.begun for mark in bins.marks.values()],
        hovertemplate="%{x:.6~g} s: %{y} under way for %{z:.0%} of the bin, %{customdata:,} begun"
        "<extra></extra>",
        colorscale=SCALES["mark"],
        zmin=0,
        zmax=1,
        showscale=False,
        ygap=3,
        meta="mark",
        **at,
    )
