"""Candidates against the reference: ratios with their intervals."""

from collections.abc import Sequence

import plotly.graph_objects as go

from spoolscope.analysis.compare import Pair
from spoolscope.analysis.metrics import METRICS, PRIMARY
from spoolscope.analysis.stats import Estimate
from spoolscope.report.figures.base import layout
from spoolscope.report.palette import CANDIDATE_COLOURS

_TICKS = (0.1, 0.2, 0.33, 0.5, 0.7, 1.0, 1.4, 2.0, 3.0, 5.0, 10.0, 30.0, 100.0)


def forest(pairs: Sequence[Pair], reference: str, order: Sequence[str]) -> go.Figure:
    """Return a row per metric and a point per candidate, left of 1 is better than reference.

    ``order`` names all candidates, so that each keeps its colour in every figure.
    """
    plot = go.Figure()
    labels = [METRICS[key].label for key in METRICS]
    for number, pair in enumerate(pairs):
        estimates = {PRIMARY: pair.primary, **pair.secondary}
        known = [(k, e) for k, e in estimates.items() if e.n and e.ratio > 0]
        offset = (number - (len(pairs) - 1) / 2) * 0.22
        plot.add_trace(_points(pair.candidate, order.index(pair.candidate), known, labels, offset))
    layout(plot, len(labels) * 38 + 70)
    plot.add_vline(x=1, line={"width": 1, "dash": "dot", "color": "#888"})
    plot.update_xaxes(
        type="log",
        tickvals=_TICKS,
        ticktext=[f"{tick:g} x" for tick in _TICKS],
        title={"text": f"times {reference}, less is better", "font": {"size": 13}},
    )
    plot.update_yaxes(
        tickvals=list(range(len(labels))),
        ticktext=[f"<b>{labels[0]}</b>", *labels[1:]],
        range=[len(labels) - 0.5, -0.5],
    )
    return plot


def _points(
    name: str,
    number: int,
    known: Sequence[tuple[str, Estimate]],
    labels: Sequence[str],
    offset: float,
) -> go.Scatter:
    return go.Scatter(
        x=[e.ratio for _, e in known],
        y=[labels.index(METRICS[key].label) + offset for key, _ in known],
        mode="markers",
        name=name,
        marker={
            "size": [12 if key == PRIMARY else 8 for key, _ in known],
            "color": CANDIDATE_COLOURS[number % len(CANDIDATE_COLOURS)],
            "symbol": "diamond",
        },
        error_x={
            "type": "data",
            "array": [(e.high or e.ratio) - e.ratio for _, e in known],
            "arrayminus": [e.ratio - (e.low or e.ratio) for _, e in known],
            "thickness": 1.5,
            "width": 4,
        },
        hovertemplate=f"{name}: %{{x:.2f}} x<extra></extra>",
    )
