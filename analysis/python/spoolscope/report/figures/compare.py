"""Candidates against the reference: ratios with their intervals."""

from collections.abc import Collection, Sequence
from html import escape
from math import log10
from typing import Any

import plotly.graph_objects as go

from spoolscope.analysis.metrics import METRICS, PRIMARY
from spoolscope.analysis.pairs import Pair
from spoolscope.analysis.stats import MINIMUM_EFFECT, Estimate
from spoolscope.analysis.wording import FAR, fitting, interval
from spoolscope.report.figures.base import layout
from spoolscope.report.palette import BLUE, CANDIDATE_COLOURS, GREEN, GREY, ORANGE, VERMILLION

_TICKS = (
    (0.7, 0.8, 0.9, 0.95, 0.98, 1.02, 1.05, 1.1, 1.2, 1.4),
    (0.1, 0.2, 0.33, 0.5, 0.7, 1.4, 2.0, 3.0, 5.0, 10.0),
    tuple(10.0**e for e in range(-9, 10) if e),
)
"""Ticks of a log axis besides 1, from the closest to the widest set."""

CLOSEST = 0.22
"""Least distance of two ticks, as a part of the axis: the width of one on a narrow screen."""


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
    shown = [e for pair in pairs for e in (pair.primary, *pair.secondary.values())]
    low, high = axis_range([e for e in shown if e.n and e.ratio > 0])
    _ratio_axis(plot, reference, low, high)
    plot.update_yaxes(
        tickvals=list(range(len(labels))),
        ticktext=[f"<b>{labels[0]}</b>", *labels[1:]],
        range=[len(labels) - 0.5, -0.5],
    )
    return plot


WORD_COLOURS = {
    "faster": GREEN,
    "equivalent": BLUE,
    "slower": VERMILLION,
    "indicative": ORANGE,
    "inconclusive": GREY,
}
WIDEST = 100.0
"""Largest ratio on an axis; intervals may extend beyond the figure."""


def forest_of_many(pairs: Sequence[Pair], reference: str, marked: Collection[str]) -> go.Figure:
    """Return a row per candidate for the primary metric, the fastest on top.

    Args:
        pairs: Every other candidate against the reference, the fastest first.
        reference: Its name.
        marked: Candidates with another durability, whose names get a "!".
    """
    plot, known = go.Figure(), [pair for pair in pairs if pair.primary.n]
    for word, colour in WORD_COLOURS.items():
        rows = [(row, pair) for row, pair in enumerate(known) if pair.word == word]
        if rows:
            plot.add_trace(_verdicts(word, colour, rows))
    layout(plot, len(known) * 30 + 76)
    near = (1 / (1 + MINIMUM_EFFECT), 1 + MINIMUM_EFFECT)
    plot.add_vrect(x0=near[0], x1=near[1], fillcolor="#888", opacity=0.15, line_width=0)
    plot.add_vline(x=1, line={"width": 1, "dash": "dot", "color": "#888"})
    low, high = axis_range([pair.primary for pair in known])
    low, high = max(low, 1 / WIDEST), min(high, WIDEST)
    _ratio_axis(plot, reference, low, high)
    plot.update_yaxes(
        tickvals=list(range(len(known))),
        ticktext=[_row_name(pair.candidate, marked) for pair in known],
        range=[len(known) - 0.5, -0.5],
    )
    return plot


def _row_name(name: str, marked: Collection[str]) -> str:
    return f"{'! ' * (name in marked)}{escape(fitting(name, 24, 4))}"


def _verdicts(word: str, colour: str, rows: Sequence[tuple[int, Pair]]) -> go.Scatter:
    estimates = [pair.primary for _, pair in rows]
    said = [f"{p.candidate}: {p.primary.ratio:.2f} x, {_interval(p.primary)}" for _, p in rows]
    return go.Scatter(
        x=[e.ratio for e in estimates],
        y=[row for row, _ in rows],
        mode="markers",
        name=word,
        marker={"size": 11, "color": colour, "symbol": "diamond"},
        error_x=_bounds(estimates),
        customdata=said,
        hovertemplate="%{customdata}<extra></extra>",
    )


def _interval(estimate: Estimate) -> str:
    return f"{interval(estimate.low, estimate.high)} (n = {estimate.n})"


def _bounds(estimates: Sequence[Estimate]) -> dict[str, Any]:
    return {
        "type": "data",
        "array": [(e.high or e.ratio) - e.ratio for e in estimates],
        "arrayminus": [e.ratio - (e.low or e.ratio) for e in estimates],
        "thickness": 1.5,
        "width": 4,
    }


def _ratio_axis(plot: go.Figure, reference: str, low: float, high: float) -> None:
    tickvals = ticks(low, high)
    plot.update_xaxes(
        type="log",
        range=[log10(low), log10(high)],
        tickvals=tickvals,
        ticktext=[f"{tick:g} x" for tick in tickvals],
        title={"text": f"times {reference}, less is better", "font": {"size": 13}},
    )


def axis_range(estimates: Sequence[Estimate]) -> tuple[float, float]:
    """Return the range of an axis that shows 1, all ratios and their intervals.

    An interval of three scattered runs may span twenty decades, so that the axis ends at
    `FAR` times its ratio.
    """
    ends = [1.0]
    for e in estimates:
        low, high = e.low or e.ratio, e.high or e.ratio
        ends += [e.ratio, max(low, e.ratio / FAR), min(high, e.ratio * FAR)]
    margin = (max(ends) / min(ends)) ** 0.06 * 1.02
    return min(ends) / margin, max(ends) * margin


def ticks(low: float, high: float) -> list[float]:
    """Return the ticks of a log axis from ``low`` to ``high``: 1, and as many as have space."""
    close = (set_ for set_ in _TICKS if set_[0] <= 1.5 * low and high <= 1.5 * set_[-1])
    known = next(close, _TICKS[-1])
    apart, chosen = log10(high / low) * CLOSEST, [1.0]
    for tick in sorted(known, key=lambda tick: abs(log10(tick))):
        if low <= tick <= high and all(abs(log10(tick / other)) >= apart for other in chosen):
            chosen.append(tick)
    return sorted(chosen)


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
        error_x=_bounds([e for _, e in known]),
        hovertemplate=f"{name}: %{{x:.2f}} x<extra></extra>",
    )
