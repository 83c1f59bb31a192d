"""Figures of a fleet: hosts beside their peers, one measure by day, and what a change did."""

from collections.abc import Sequence
from html import escape

import numpy as np
import plotly.graph_objects as go

from spoolscope.analysis.fleet.change import Effect
from spoolscope.analysis.fleet.drill import Suspect
from spoolscope.analysis.fleet.fleet_answer import Answer
from spoolscope.analysis.fleet.measures import MEASURES
from spoolscope.analysis.fleet.outliers import TREND, TRENDED, Test
from spoolscope.analysis.wording import duration
from spoolscope.report.figures.base import layout
from spoolscope.report.palette import BLUE, GREEN, GREY, VERMILLION

LABELS = {name: one.label for name, one in MEASURES.items()} | {TREND: "growth of disk wait"}
MOST_POINTS = 400
"""Most unnamed points of a measure: more of them lie on one another."""
TICKS = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)


def beside_peers(answer: Answer) -> go.Figure:
    """Return a row for each measure, and in it a point for each spool at its ratio to its peers."""
    tests = answer.tested.tests
    named = {id(one.test): one for one in answer.suspects}
    plot = go.Figure()
    order = list(LABELS)
    for name, colour, size in (("not named", GREY, 5), ("differs", VERMILLION, 11)):
        chosen = [test for test in tests if (id(test) in named) == (name == "differs")]
        if name == "not named":
            chosen = _thinned(chosen)
        if chosen:
            plot.add_trace(_points(answer, name, colour, size, chosen, order))
    layout(plot, len(order) * 42 + 80)
    plot.add_vline(x=1, line={"width": 1, "dash": "dot", "color": "#888"})
    far = max((max(test.ratio, 1 / test.ratio) for test in tests), default=2.0)
    edge = float(np.log10(max(far, 2.0) * 1.15))
    ticks = [tick for tick in TICKS if abs(np.log10(tick)) <= edge]
    plot.update_xaxes(
        type="log",
        range=[-edge, edge],
        tickvals=ticks,
        ticktext=[f"{tick:g} x" for tick in ticks],
        title="by the median of the peers",
    )
    plot.update_yaxes(
        tickvals=list(range(len(order))),
        ticktext=[LABELS[name] for name in order],
        range=[len(order) - 0.5, -0.5],
    )
    return plot


def _thinned(tests: Sequence[Test]) -> list[Test]:
    by_measure: dict[str, list[Test]] = {}
    for test in tests:
        by_measure.setdefault(test.measure, []).append(test)
    kept = []
    for own in by_measure.values():
        ranked = sorted(own, key=lambda test: test.ratio)
        kept += ranked[:: max(1, -(-len(ranked) // MOST_POINTS))]
    return kept


def _points(
    answer: Answer, name: str, colour: str, size: int, tests: Sequence[Test], order: Sequence[str]
) -> go.Scatter:
    spread = [((test.row * 7919) % 101 / 100 - 0.5) * 0.5 for test in tests]
    hosts = [escape(answer.fleet.spools[test.row].host) for test in tests]
    return go.Scatter(
        x=[round(test.ratio, 4) for test in tests],
        y=[order.index(test.measure) + at for test, at in zip(tests, spread, strict=True)],
        mode="markers",
        name=name,
        marker={"size": size, "color": colour, "opacity": 0.9 if name == "differs" else 0.5},
        customdata=[
            f"{host}: {_value(test)}, {test.ratio:.2f} x its peers"
            for host, test in zip(hosts, tests, strict=True)
        ],
        hovertemplate="%{customdata}<extra></extra>",
    )


def _value(test: Test) -> str:
    return f"{test.value:.2f} times" if test.measure == TREND else duration(test.value)


def by_day(answer: Answer, one: Suspect) -> go.Figure:
    """Return the days of one spool, and the median and the middle half of those of its kind."""
    fleet, test = answer.fleet, one.test
    values = fleet.values[TRENDED if test.measure == TREND else test.measure] / 1e6
    spool = fleet.spools[test.row]
    others = [row for row, s in enumerate(fleet.spools) if s.fs == spool.fs and row != test.row]
    kin = values[others]
    known = np.any(np.isfinite(kin), axis=0, keepdims=True)[0]
    low, middle, high = (_quantiles(kin, known, q) for q in (25, 50, 75))
    dates = list(fleet.dates)
    plot = go.Figure()
    for ends, fill in ((low, None), (high, "tonexty")):
        plot.add_trace(
            go.Scatter(
                x=dates,
                y=ends,
                mode="lines",
                line={"width": 0},
                fill=fill,
                fillcolor="rgba(0,114,178,.18)",
                hoverinfo="skip",
            )
        )
    for name, line, colour in (
        ("median of its kind", middle, BLUE),
        (spool.host, _listed(values[test.row]), VERMILLION),
    ):
        plot.add_trace(
            go.Scatter(
                x=dates,
                y=line,
                mode="lines",
                name=escape(name),
                line={"color": colour, "width": 2},
                hovertemplate="%{x}: %{y:.3g} ms<extra>%{fullData.name}</extra>",
            )
        )
    layout(plot, 260)
    plot.update_yaxes(ticksuffix=" ms", rangemode="tozero")
    plot.update_xaxes(type="category", nticks=8)
    return plot


def _quantiles(values: np.ndarray, known: np.ndarray, q: float) -> list[float | None]:
    found = np.full(values.shape[1], np.nan)
    found[known] = np.nanpercentile(values[:, known], q, axis=0)
    return _listed(found)


def _listed(values: np.ndarray) -> list[float | None]:
    return [float(f"{value:.5g}") if np.isfinite(value) else None for value in values]


def changes(effects: Sequence[Effect]) -> go.Figure:
    """Return a row for each measure with its ratio after by before, and the interval."""
    plot = go.Figure()
    kinds = (("slower", VERMILLION), ("faster", GREEN), ("not certain, or the same", GREY))
    for name, colour in kinds:
        rows = [
            (row, one)
            for row, one in enumerate(effects)
            if one.estimate.low is not None and _kind(one) == name
        ]
        if not rows:
            continue
        middles = [one.estimate.ratio for _, one in rows]
        plot.add_trace(
            go.Scatter(
                x=middles,
                y=[row for row, _ in rows],
                mode="markers",
                name=name,
                marker={"size": 11, "color": colour, "symbol": "diamond"},
                error_x={
                    "type": "data",
                    "array": [(one.estimate.high or 0) - one.estimate.ratio for _, one in rows],
                    "arrayminus": [one.estimate.ratio - (one.estimate.low or 0) for _, one in rows],
                    "thickness": 1.5,
                },
                hovertemplate="%{x:.3f} x<extra></extra>",
            )
        )
    layout(plot, len(effects) * 38 + 80)
    plot.add_vline(x=1, line={"width": 1, "dash": "dot", "color": "#888"})
    plot.update_xaxes(title="after by before", ticksuffix=" x")
    plot.update_yaxes(
        tickvals=list(range(len(effects))),
        ticktext=[MEASURES[one.measure].label for one in effects],
        range=[len(effects) - 0.5, -0.5],
    )
    return plot


def _kind(one: Effect) -> str:
    return one.word if one.word in ("slower", "faster") else "not certain, or the same"
