"""Latency over time, and time in calls and commits, bin by bin."""

from collections.abc import Mapping

from spoolscope.analysis.causes import CAUSES
from spoolscope.analysis.timeline import Timeline
from spoolscope.analysis.wording import duration
from spoolscope.report.explorer import explorer
from spoolscope.report.figures import timeline as timeline_figures
from spoolscope.report.figures.base import count_cell, time_cell
from spoolscope.report.inputs import Inputs, Studies
from spoolscope.report.page import Figure, Section, Table

anchor = "timeline"


def applies(page: Inputs) -> bool:
    """Return True if a trace was studied."""
    return bool(page.studies)


def make(page: Inputs) -> Section:
    """Lay out the timeline."""
    studies = page.studies
    lines = {name: study.timeline for name, study in studies.items()}
    bin_s = next(iter(lines.values())).bin_ns / 1e9
    figure = Figure(
        key="timeline",
        title="Time in calls, bin by bin",
        finding=" ".join(_busiest(name, lines) for name in lines),
        caption=f"Bins of {bin_s:g} s; a wait counts where it began, so a bin can hold more than "
        "its length, many calls run at once. Causes under 1 % of all are left out of the drawing. "
        f"The line counts commits begun. {page.method}",
        table=_timeline_table(studies),
        plot=timeline_figures.timelines(lines),
    )
    explorers = [
        explorer(f"explorer-{number}", name, study, folded=number > 0)
        for number, (name, study) in enumerate(studies.items())
        if study.bins.n
    ]
    intro = "Bursts, stalls, and the commits behind them."
    return Section(anchor, "Timeline", "When", intro, [*explorers, figure])


def _busiest(name: str, lines: Mapping[str, Timeline]) -> str:
    line = lines[name]
    most = max(line.charged_ns, default=0)
    at = line.charged_ns.index(most) * line.bin_ns if most else 0
    said = f"most time in calls falls into the {line.bin_ns / 1e9:g} s from {at / 1e9:g} s on"
    said = f"{said[0].upper()}{said[1:]}" if len(lines) == 1 else f"{name}: {said}"
    return f"{said}: {duration(most)}."


def _timeline_table(studies: Studies) -> Table:
    rows = []
    for name, study in studies.items():
        line = study.timeline
        for index in range(line.n_bins):
            parts = {cause: bins[index] for cause, bins in line.causes.items()}
            top = max(parts, key=lambda cause: parts[cause], default="cpu")
            rows.append(
                [name, time_cell(index * line.bin_ns), count_cell(line.calls[index]),
                 time_cell(sum(parts.values())), CAUSES[top].label, count_cell(line.commits[index])]
            )  # fmt: skip
    return Table(["trace", ">at", ">calls", ">time", "mostly", ">commits"], rows)
