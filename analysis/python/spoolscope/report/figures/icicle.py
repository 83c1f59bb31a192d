"""Time as an icicle: process, call, cause, each part as long as its time."""

from collections.abc import Sequence

import plotly.graph_objects as go

from spoolscope.analysis.causes import CAUSES
from spoolscope.analysis.time_tree import Node
from spoolscope.analysis.wording import count, duration, percent
from spoolscope.report.figures.base import layout
from spoolscope.report.palette import CAUSE_INKS, GREY, Ink

HEIGHT = 520
PLAIN = "#9aa4af"
"""Placeholder for the page's colour, which depends on light or dark mode."""
BLACK, WHITE = "#111111", "#ffffff"


def label(node: Node) -> str:
    """Return the name of a part."""
    if not node.path:
        return "all calls"
    name = node.path[-1]
    return CAUSES[name].label if len(node.path) == 3 and name in CAUSES else name


def icicle(nodes: Sequence[Node]) -> go.Figure:
    """Return the tree from left to right; a click on a part shows it alone."""
    number = {node.path: str(at) for at, node in enumerate(nodes)}
    total = max(nodes[0].ns, 1) if nodes else 1
    inks = [_ink(node) for node in nodes]
    plot = go.Figure(
        go.Icicle(
            ids=[number[node.path] for node in nodes],
            labels=[label(node) for node in nodes],
            parents=[number[node.path[:-1]] if node.path else "" for node in nodes],
            values=[node.ns for node in nodes],
            branchvalues="total",
            customdata=[_said(node, total) for node in nodes],
            text=[f"{label(node)} {percent(node.ns / total, 0)}" for node in nodes],
            textinfo="text",
            leaf={"opacity": 1},
            hovertemplate="%{label}: %{customdata}<extra></extra>",
            tiling={"orientation": "h", "pad": 1},
            pathbar={"visible": False},
            marker={
                "colors": [ink.colour if ink else PLAIN for ink in inks],
                "pattern": {
                    "shape": [ink.pattern if ink else "" for ink in inks],
                    "fillmode": "overlay",
                    "fgcolor": "rgba(255,255,255,.55)",
                    "size": 6,
                    "solidity": 0.2,
                },
            },
            textfont={"color": [_text(ink) for ink in inks], "size": 13},
            meta="icicle",
        )
    )
    layout(plot, HEIGHT)
    plot.update_layout(uniformtext={"minsize": 12, "mode": "hide"})
    return plot


def _ink(node: Node) -> Ink | None:
    if len(node.path) < 3:
        return None
    return CAUSE_INKS.get(node.path[-1], Ink(GREY))


def _text(ink: Ink | None) -> str:
    """Return black or white, the one with more contrast to the ink; ``PLAIN`` without an ink."""
    if ink is None:
        return PLAIN
    red, green, blue = (int(ink.colour[at : at + 2], 16) for at in (1, 3, 5))
    return BLACK if 0.299 * red + 0.587 * green + 0.114 * blue > 110 else WHITE


def _said(node: Node, total: int) -> str:
    calls = "" if node.n is None else f", {count(node.n)} calls"
    return f"{duration(node.ns)}, {percent(node.ns / total)} of all{calls}"
