"""Commits as bars of their activities."""

from collections.abc import Sequence
from html import escape

import plotly.graph_objects as go

from spoolscope.analysis.commit_parts import PARTS, part_label
from spoolscope.analysis.commits import Commit
from spoolscope.analysis.wording import count, duration
from spoolscope.report.figures.base import ink_marker, layout, seconds_axis
from spoolscope.report.palette import PART_INKS

ROW = 25


def taken_apart(commits: Sequence[Commit]) -> go.Figure:
    """Return one bar per commit, the first on top, of its parts."""
    scale, unit = seconds_axis(max((commit.dur_ns for commit in commits), default=0))
    plot = go.Figure()
    places = list(range(len(commits)))
    for part in PARTS:
        if not any(commit.parts.get(part) for commit in commits):
            continue
        plot.add_trace(
            go.Bar(
                x=[commit.parts.get(part, 0) / scale for commit in commits],
                y=places,
                orientation="h",
                name=part_label(part),
                legendgroup=part,
                marker=ink_marker(PART_INKS[part]),
                customdata=[_said(commit, part) for commit in commits],
                hovertemplate="%{customdata}<extra></extra>",
            )
        )
    layout(plot, ROW * len(commits) + 50)
    plot.update_layout(barmode="stack", bargap=0.25)
    plot.update_xaxes(ticksuffix=f" {unit}", rangemode="tozero")
    # Plotly interprets tags in tick texts, and names may contain tags.
    names = [f"{escape(_asker(c), quote=False)}, {c.at_ns / 1e9:.2f} s" for c in commits]
    plot.update_yaxes(autorange="reversed", tickvals=places, ticktext=names)
    return plot


def _asker(commit: Commit) -> str:
    return commit.comm if commit.syscall == "-" else f"{commit.comm} ({commit.syscall})"


def _said(commit: Commit, part: str) -> str:
    return (
        f"{part_label(part)}: {duration(commit.parts.get(part, 0))} of "
        f"{duration(commit.dur_ns)}; {count(commit.waiters)} waited {duration(commit.waited_ns)}"
    )
