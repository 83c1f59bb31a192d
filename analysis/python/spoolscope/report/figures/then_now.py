"""A published comparison beside today's figures, as ratios to one candidate."""

from collections.abc import Mapping, Sequence
from typing import Any

import plotly.graph_objects as go

from spoolscope.report.figures.base import layout
from spoolscope.report.palette import CANDIDATE_COLOURS, GREY

ROW = 24


def then_and_now(table: Mapping[str, Any], year: int, reference: str) -> go.Figure:
    """Return a row for each figure of each candidate: a diamond then, a circle with 95 % now.

    Args:
        table: One of ``tables`` in the object that ``lab workload --json`` prints.
        year: Year of the published comparison.
        reference: The candidate to which all ratios refer; it has no row.
    """
    titles = {column["metric"]: column["title"] for column in table["columns"]}
    shown = [
        figure
        for figure in table["figures"]
        if figure["candidate"] != reference and (figure["then_ratio"] or figure["ratio"])
    ]
    order = list(dict.fromkeys(figure["candidate"] for figure in shown))
    labels = [f"{titles[figure['metric']]} · {figure['candidate']}" for figure in shown]
    colours = [
        CANDIDATE_COLOURS[order.index(figure["candidate"]) % len(CANDIDATE_COLOURS)]
        for figure in shown
    ]
    plot = go.Figure()
    plot.add_trace(_then(shown, labels, year))
    plot.add_trace(_now(shown, labels, colours))
    layout(plot, ROW * max(len(labels), 2) + 110, titles=True)
    plot.add_vline(x=1, line={"width": 1, "dash": "dot", "color": GREY})
    plot.update_xaxes(type="log", title_text=f"times {reference}")
    plot.update_yaxes(categoryorder="array", categoryarray=labels[::-1])
    # Without its anchor a legend there would hang into the plot.
    legend = {"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom"}
    return plot.update_layout(showlegend=True, legend=legend)


def _then(shown: Sequence[Mapping[str, Any]], labels: Sequence[str], year: int) -> go.Scatter:
    known = [
        (figure["then_ratio"], label)
        for figure, label in zip(shown, labels, strict=True)
        if figure["then_ratio"]
    ]
    return go.Scatter(
        x=[ratio for ratio, _ in known],
        y=[label for _, label in known],
        name=str(year),
        mode="markers",
        marker={"symbol": "diamond-open", "size": 11, "color": GREY, "line": {"width": 2}},
    )


def _now(
    shown: Sequence[Mapping[str, Any]], labels: Sequence[str], colours: Sequence[str]
) -> go.Scatter:
    known = [
        (figure["ratio"], label, colour)
        for figure, label, colour in zip(shown, labels, colours, strict=True)
        if figure["ratio"] and (figure["ratio"]["ratio"] or 0) > 0  # of nothing it has none
    ]
    bounded = [ratio["low"] is not None for ratio, _, _ in known]
    return go.Scatter(
        x=[ratio["ratio"] for ratio, _, _ in known],
        y=[label for _, label, _ in known],
        name="now, 95 %",
        mode="markers",
        marker={"size": 10, "color": [colour for _, _, colour in known]},
        error_x={
            "symmetric": False,
            "array": [
                ratio["high"] - ratio["ratio"] if sure else 0
                for (ratio, _, _), sure in zip(known, bounded, strict=True)
            ],
            "arrayminus": [
                ratio["ratio"] - ratio["low"] if sure else 0
                for (ratio, _, _), sure in zip(known, bounded, strict=True)
            ],
        },
    )
