"""Cost of finding names in directories, by their number of names."""

from collections.abc import Mapping, Sequence

import plotly.graph_objects as go

from spoolscope.analysis.lookups import LookupCost
from spoolscope.analysis.wording import count, duration
from spoolscope.report.figures.base import duration_ticks, layout
from spoolscope.report.palette import CANDIDATE_COLOURS

HEIGHT = 340
SHAPES = ("circle", "diamond", "square", "triangle-up")


def costs_by_size(candidates: Mapping[str, Sequence[LookupCost]]) -> go.Figure:
    """Return one point per directory, log against log; a colour and a shape per candidate."""
    plot = go.Figure()
    for number, (name, costs) in enumerate(candidates.items()):
        plot.add_trace(
            go.Scatter(
                x=[max(cost.entries or 0, 1) for cost in costs],
                y=[cost.total_ns for cost in costs],
                mode="markers",
                name=name,
                marker={
                    "color": CANDIDATE_COLOURS[number % len(CANDIDATE_COLOURS)],
                    "symbol": SHAPES[number % len(SHAPES)],
                    "size": 11,
                    "opacity": 0.8,
                },
                customdata=[_said(cost) for cost in costs],
                hovertemplate="%{customdata}<extra></extra>",
            )
        )
    layout(plot, HEIGHT)
    times = [cost.total_ns for costs in candidates.values() for cost in costs]
    plot.update_xaxes(type="log", dtick=1, title={"text": "names in the directory"})
    plot.update_yaxes(
        **duration_ticks(min(times, default=1), max(times, default=10)),
        title={"text": "time of finding names"},
    )
    return plot


def _said(cost: LookupCost) -> str:
    return (
        f"{cost.path or '(top of the spool)'}: {count(cost.entries or 0)} names, "
        f"{duration(cost.total_ns)}: reads {duration(cost.lookup_io_ns)}, lock "
        f"{duration(cost.dir_lock_ns)}, CPU {duration(cost.cpu_ns)}"
    )
