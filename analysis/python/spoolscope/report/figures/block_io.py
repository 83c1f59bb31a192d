"""Block requests: written bytes, and the time of a request by stage."""

from collections.abc import Sequence

import plotly.graph_objects as go

from spoolscope.analysis.block_io import PARTS, Stages
from spoolscope.report.figures.base import ROW_HEIGHT, layout, seconds_axis
from spoolscope.report.palette import BLUE, GREY, ORANGE, SKY

_INKS = dict(zip(PARTS, (GREY, SKY, ORANGE, BLUE), strict=True))


def stages(found: Sequence[tuple[str, Stages]]) -> go.Figure:
    """Return a bar of the mean time per stage for each device and direction."""
    plot = go.Figure()
    labels = [label for label, _ in found]
    longest = max((one.total_ns / one.n for _, one in found), default=0)
    scale, unit = seconds_axis(longest)
    for part, label in PARTS.items():
        plot.add_trace(
            go.Bar(
                name=label,
                legendgroup=part,
                orientation="h",
                y=labels,
                x=[round(one.parts[part] / one.n / scale, 4) for _, one in found],
                marker={"color": _INKS[part], "line": {"width": 0}},
                hovertemplate=f"{label}: %{{x:.3g}} {unit} a request<extra></extra>",
            )
        )
    layout(plot, len(found) * ROW_HEIGHT + 60)
    plot.update_layout(barmode="stack")
    plot.update_xaxes(ticksuffix=f" {unit}")
    plot.update_yaxes(autorange="reversed")
    return plot
