"""Differences between two recordings, with their intervals."""

from collections.abc import Sequence
from html import escape

import plotly.graph_objects as go

from spoolscope.analysis.recordings.moved import Part
from spoolscope.analysis.wording import duration, fitting
from spoolscope.report.figures.base import layout, seconds_axis
from spoolscope.report.palette import GREEN, GREY, VERMILLION


def differences(parts: Sequence[tuple[str, Part]]) -> go.Figure:
    """Return a row for each labelled part; right of 0 the time of a call grew."""
    plot = go.Figure()
    widest = max((max(map(abs, _ends(part))) for _, part in parts), default=1.0)
    scale, unit = seconds_axis(widest)
    for name, colour in (("more", VERMILLION), ("less", GREEN), ("not certain", GREY)):
        rows = [(row, *each) for row, each in enumerate(parts) if _sort(each[1]) == name]
        if rows:
            plot.add_trace(_points(name, colour, rows, scale))
    layout(plot, len(parts) * 30 + 100)
    plot.add_vline(x=0, line={"width": 1, "dash": "dot", "color": "#888"})
    plot.update_xaxes(title=f"difference of the time of each call, {unit}")
    plot.update_yaxes(
        tickvals=list(range(len(parts))),
        ticktext=[escape(fitting(label, 24, 8)) for label, _ in parts],
        range=[len(parts) - 0.5, -0.5],
    )
    return plot


def _ends(part: Part) -> tuple[float, float]:
    moved = part.moved
    if moved.difference_low is None or moved.difference_high is None:
        return moved.difference, moved.difference
    return moved.difference_low, moved.difference_high


def _sort(part: Part) -> str:
    low, high = _ends(part)
    if part.moved.difference_low is None or low <= 0 <= high:
        return "not certain"
    return "more" if low > 0 else "less"


def _points(
    name: str, colour: str, rows: Sequence[tuple[int, str, Part]], scale: float
) -> go.Scatter:
    middles = [part.moved.difference / scale for _, _, part in rows]
    ends = [tuple(end / scale for end in _ends(part)) for _, _, part in rows]
    return go.Scatter(
        x=middles,
        y=[row for row, _, _ in rows],
        mode="markers",
        name=name,
        marker={"size": 10, "color": colour, "symbol": "diamond"},
        error_x={
            "type": "data",
            "array": [high - at for at, (_, high) in zip(middles, ends, strict=True)],
            "arrayminus": [at - low for at, (low, _) in zip(middles, ends, strict=True)],
            "thickness": 1.5,
        },
        customdata=[
            f"{label}: {duration(part.moved.reference)}, then {duration(part.moved.candidate)}"
            for _, label, part in rows
        ],
        hovertemplate="%{customdata}<extra></extra>",
    )
