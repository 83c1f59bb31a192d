"""Tails of latencies: the share of calls that took longer than a given time."""

from collections.abc import Mapping, Sequence

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from spoolscope.analysis.latency import Curve
from spoolscope.analysis.why import family_label
from spoolscope.report.figures.base import duration_ticks, layout
from spoolscope.report.palette import CANDIDATE_COLOURS, CANDIDATE_DASHES

COLUMNS = 3
PANEL_HEIGHT = 220
POINTS = 2000
"""Most points of a panel, over all its lines."""
_SHARES = (1.0, 0.1, 0.01, 0.001, 0.0001)


def tails(candidates: Mapping[str, Sequence[Curve]]) -> go.Figure:
    """Return one panel per family of calls with a line per candidate, log against log."""
    families = list(dict.fromkeys(c.name for curves in candidates.values() for c in curves))
    n_rows = max(1, -(-len(families) // COLUMNS))
    plot = make_subplots(
        rows=n_rows,
        cols=COLUMNS,
        subplot_titles=[family_label(family) for family in families],
        shared_yaxes=True,
        horizontal_spacing=0.03,
        vertical_spacing=min(0.2, 70 / (n_rows * PANEL_HEIGHT)),
    )
    for number, (name, curves) in enumerate(candidates.items()):
        for curve in curves:
            index = families.index(curve.name)
            line = _line(curve, name, number, POINTS // len(candidates))
            plot.add_trace(line, row=index // COLUMNS + 1, col=index % COLUMNS + 1)
    everything = [x for curves in candidates.values() for c in curves for x in c.x_ns if x > 0]
    layout(plot, n_rows * PANEL_HEIGHT + 30, titles=True)
    plot.update_xaxes(**duration_ticks(min(everything, default=1), max(everything, default=10)))
    plot.update_yaxes(
        type="log",
        range=[-4.2, 0.1],
        tickvals=_SHARES,
        ticktext=["all", "10 %", "1 %", "0.1 %", "0.01 %"],
    )
    return plot


def _line(curve: Curve, name: str, number: int, most: int) -> go.Scatter:
    """Return a line of 1 - F with at most ``most`` points, without the largest value (share 0)."""
    slower = [max(0.0, 1 - share) for share in curve.share]
    points = [(x, y) for x, y in zip(curve.x_ns, slower, strict=True) if x > 0 and y > 0]
    points = points[:: max(1, -(-len(points) // most))] + points[-1:]
    return go.Scatter(
        x=[x for x, _ in points],
        # More digits would be invisible, and most of the page's bytes.
        y=[float(f"{y:.4g}") for _, y in points],
        mode="lines",
        name=name,
        legendgroup=name,
        line={
            "color": CANDIDATE_COLOURS[number % len(CANDIDATE_COLOURS)],
            # A line whose colour is already used gets another dash.
            "dash": CANDIDATE_DASHES[
                (number + number // len(CANDIDATE_COLOURS)) % len(CANDIDATE_DASHES)
            ],
            "width": 2,
            "shape": "hv",
        },
        hovertemplate=f"%{{fullData.name}}: %{{y:.2%}} of {curve.n:,} took over %{{x:,.0f}} ns"
        "<extra></extra>",
    )
