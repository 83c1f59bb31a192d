"""Time in calls per second, by cause, with the commits below."""

from collections.abc import Mapping

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from spoolscope.analysis.timeline import Timeline
from spoolscope.report.figures.base import cause_bar, drawn, layout, seconds_axis, shown_causes

PANEL_HEIGHT = 190
COMMIT_COLOUR, HALO = "#1d2126", "#ffffff"
"""A dark line on a light one: it is seen on bars of any cause, in light and dark mode."""


def timelines(candidates: Mapping[str, Timeline]) -> go.Figure:
    """Return a panel of stacked bars per candidate, commits as a line on the right axis."""
    n = len(candidates)
    plot = make_subplots(
        rows=n,
        cols=1,
        shared_xaxes=True,
        subplot_titles=list(candidates) if n > 1 else None,
        vertical_spacing=min(0.1, 40 / (n * PANEL_HEIGHT)),
        specs=[[{"secondary_y": True}]] * n,
    )
    rows = drawn([(k, {c: sum(b) for c, b in t.causes.items()}) for k, t in candidates.items()])
    highest = max((max(t.charged_ns, default=0) for t in candidates.values()), default=0)
    scale, unit = seconds_axis(highest)
    for number, line in enumerate(candidates.values(), start=1):
        _add(plot, line, number, scale, shown_causes(rows, least=0.01))
    layout(plot, n * PANEL_HEIGHT + 60, titles=n > 1)
    plot.update_layout(barmode="stack", bargap=0.06)
    plot.update_xaxes(ticksuffix=" s", row=n)
    top = 1.05 * highest / scale
    plot.update_yaxes(ticksuffix=f" {unit}", range=[0, top], secondary_y=False)
    plot.update_yaxes(
        title={"text": "commits", "standoff": 4, "font": {"size": 11}},
        rangemode="tozero",
        tickmode="auto",
        nticks=3,
        showgrid=False,
        secondary_y=True,
    )
    return plot


def _add(plot: go.Figure, line: Timeline, row: int, scale: float, shown: list[str]) -> None:
    middle = [(index + 0.5) * line.bin_ns / 1e9 for index in range(line.n_bins)]
    for cause in shown:
        if cause in line.causes:
            bar = cause_bar(
                cause,
                x=middle,
                y=[round(ns / scale, 4) for ns in line.causes[cause]],
                hovertemplate="%{x:.0f} s, %{fullData.name}: %{y:.3g}<extra></extra>",
            )
            plot.add_trace(bar, row=row, col=1)
    # A step holds from its instant to the next one: the last bin ends at an instant of its own.
    edges = [index * line.bin_ns / 1e9 for index in range(line.n_bins + 1)]
    if any(line.commits):
        for colour, width in ((HALO, 4), (COMMIT_COLOUR, 1.5)):
            commits = go.Scatter(
                x=edges,
                y=[*line.commits, line.commits[-1]],
                name="commits begun",
                mode="lines",
                line={"color": colour, "width": width, "shape": "hv"},
                hoverinfo="skip" if colour == HALO else None,
                hovertemplate=None if colour == HALO else "%{x:.0f} s: %{y} commits<extra></extra>",
            )
            plot.add_trace(commits, row=row, col=1, secondary_y=True)
