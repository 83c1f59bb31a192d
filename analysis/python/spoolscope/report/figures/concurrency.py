"""Calls in flight over time, in the recording and in a replay."""

from collections.abc import Mapping, Sequence

import plotly.graph_objects as go

from spoolscope.report.figures.base import layout
from spoolscope.report.palette import CANDIDATE_COLOURS, CANDIDATE_DASHES, DARK
from spoolscope.traces.results_certificate import InFlight

HEIGHT = 260


def in_flight(candidates: Mapping[str, InFlight], order: Sequence[str]) -> go.Figure:
    """Return one line per candidate, and a broad one for the recording.

    Args:
        candidates: ``in_flight`` of the certificates, by candidate.
        order: All candidates, so that each keeps its colour in every figure.
    """
    plot = go.Figure()
    for name, flight in candidates.items():
        number = order.index(name)
        if not plot.data:
            wide = {"color": DARK, "width": 5}
            plot.add_trace(_line(flight.recorded, flight.bin_ns, "recorded", wide))
        thin = {
            "color": CANDIDATE_COLOURS[number % len(CANDIDATE_COLOURS)],
            "dash": CANDIDATE_DASHES[number % len(CANDIDATE_DASHES)],
            "width": 2,
        }
        plot.add_trace(_line(flight.replayed, flight.bin_ns, name, thin))
    layout(plot, HEIGHT)
    plot.update_xaxes(ticksuffix=" s")
    plot.update_yaxes(rangemode="tozero")
    return plot


def _line(bins: Sequence[float], bin_ns: int, name: str, line: Mapping[str, object]) -> go.Scatter:
    width = bin_ns / 1e9
    return go.Scatter(
        x=[round((at + 0.5) * width, 4) for at in range(len(bins))],
        y=bins,
        mode="lines",
        name=name,
        legendgroup=name,
        line=line,
        hovertemplate="%{x:.1f} s, %{fullData.name}: %{y:.2f} calls<extra></extra>",
    )
