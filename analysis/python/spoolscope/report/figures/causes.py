"""Bars of causes: by candidate, by call, by kind of file."""

from collections.abc import Sequence

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from spoolscope.analysis.causes import CAUSES
from spoolscope.analysis.wording import duration, percent
from spoolscope.report.figures.base import (
    ROW_HEIGHT,
    Rows,
    Table,
    cause_bar,
    drawn,
    layout,
    seconds_axis,
    shown_causes,
    time_cell,
)
from spoolscope.report.palette import BLUE


def cause_table(rows: Rows, what: str) -> Table:
    """Return every cause of every bar, with nothing left out."""
    used = [cause for cause in CAUSES if any(causes.get(cause) for _, causes in rows)]
    heads = [what, ">total", *(f">{CAUSES[cause].label}" for cause in used)]
    return Table(
        heads,
        [
            [label, time_cell(sum(causes.values())), *(time_cell(causes.get(c, 0)) for c in used)]
            for label, causes in rows
        ],
    )


def stacked(rows: Rows, *, row_height: int = ROW_HEIGHT) -> go.Figure:
    """Return one horizontal bar of causes per row, the first row on top."""
    rows = drawn(rows)
    scale, unit = seconds_axis(max((sum(causes.values()) for _, causes in rows), default=0))
    plot = go.Figure()
    _add_bars(plot, rows, scale, shown_causes(rows))
    layout(plot, len(rows) * row_height + 44)
    plot.update_layout(barmode="stack")
    plot.update_xaxes(ticksuffix=f" {unit}", rangemode="tozero")
    plot.update_yaxes(autorange="reversed")
    return plot


def totals(rows: Sequence[tuple[str, float]], row_height: int = ROW_HEIGHT) -> go.Figure:
    """Return one plain bar per row, for time whose causes are not known."""
    scale, unit = seconds_axis(max((ns for _, ns in rows), default=0))
    bar = go.Bar(
        orientation="h",
        name="time in calls",
        y=[label for label, _ in rows],
        x=[ns / scale for _, ns in rows],
        marker={"color": BLUE},
        customdata=[duration(ns) for _, ns in rows],
        hovertemplate="<b>%{y}</b>: %{customdata}<extra></extra>",
    )
    plot = layout(go.Figure(bar), len(rows) * row_height + 44)
    plot.update_xaxes(ticksuffix=f" {unit}", rangemode="tozero")
    plot.update_yaxes(autorange="reversed")
    return plot


def panels(groups: Sequence[tuple[str, Rows]]) -> go.Figure:
    """Return one panel of stacked bars per group, with common labels and a common scale."""
    groups = [(name, drawn(rows)) for name, rows in groups]
    columns = min(len(groups), 3)
    n_rows = -(-len(groups) // columns)
    longest = max((sum(c.values()) for _, rows in groups for _, c in rows), default=0)
    scale, unit = seconds_axis(longest)
    plot = make_subplots(
        rows=n_rows,
        cols=columns,
        shared_yaxes=True,
        shared_xaxes="all",
        subplot_titles=[name for name, _ in groups] if len(groups) > 1 else None,
        horizontal_spacing=0.05,
        vertical_spacing=0.16,
    )
    shown = shown_causes([row for _, rows in groups for row in rows])
    for index, (_, rows) in enumerate(groups):
        place = {"row": index // columns + 1, "col": index % columns + 1}
        _add_bars(plot, rows, scale, shown, **place)
    most = max((len(rows) for _, rows in groups), default=0)
    layout(plot, n_rows * (most * 28 + 50) + 30, titles=len(groups) > 1)
    plot.update_layout(barmode="stack")
    plot.update_xaxes(ticksuffix=f" {unit}", rangemode="tozero")
    plot.update_yaxes(autorange="reversed")
    return plot


def _add_bars(plot: go.Figure, rows: Rows, scale: float, shown: list[str], **place: int) -> None:
    labels = [label for label, _ in rows]
    totals = [max(sum(causes.values()), 1) for _, causes in rows]
    for cause in shown:
        values = [causes.get(cause, 0) for _, causes in rows]
        if not any(values):
            continue
        shares = [v / t for v, t in zip(values, totals, strict=True)]
        bar = cause_bar(
            cause,
            orientation="h",
            y=labels,
            x=[value / scale for value in values],
            customdata=[
                [CAUSES[cause].meaning, duration(v), percent(s)]
                for v, s in zip(values, shares, strict=True)
            ],
            hovertemplate="<b>%{y}</b>: %{customdata[1]} (%{customdata[2]})<br>"
            "%{fullData.name}: %{customdata[0]}<extra></extra>",
        )
        plot.add_trace(bar, **place)
