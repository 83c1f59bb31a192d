"""Distributions and percentiles of the same calls on every candidate."""

from spoolscope.analysis.fidelity import compared_runs
from spoolscope.analysis.latency import family_curves, family_latencies
from spoolscope.analysis.metrics import common_calls, has_all
from spoolscope.analysis.wording import count
from spoolscope.report.figures import latency as latency_figures
from spoolscope.report.inputs import Inputs
from spoolscope.report.latency_tables import curve_table, latency_table, tail_finding
from spoolscope.report.page import Figure, Section

anchor = "latency"
CURVES = 7
"""Most candidates with a line in the figure of tails."""


def applies(page: Inputs) -> bool:
    """Return True if the page is about a replay."""
    return page.found is not None


def make(page: Inputs) -> Section:
    """Distributions and percentiles of the same calls on every candidate."""
    found = page.comparison
    replay = found.replay
    calls = common_calls(compared_runs(replay))
    names = replay.syscalls[calls]
    curves, tables = {}, {}
    for name in found.candidates:
        run = next(run for run in replay.runs if run.candidate == name)
        if not has_all(run, calls):
            continue
        curves[name] = family_curves(names, run.latency_ns[calls])
        tables[name] = family_latencies(names, run.latency_ns[calls])
    drawn = [*list(curves)[:CURVES]]
    if found.reference in curves and found.reference not in drawn:
        drawn[-1] = found.reference
    others = len(curves) - len(drawn)
    figure = Figure(
        key="tails",
        title="Share of calls that took longer",
        finding=tail_finding(curves),
        caption=f"Both axes are logarithmic. From the replayer's own clock, first round, "
        f"{count(len(calls))} calls that every compared run executed. Families with fewer than "
        "100 calls are left out; curves are thinned to 800 points or fewer, densest in the tail."
        + (f" The other {others} candidates are only in the tables." if others else ""),
        table=curve_table(curves),
        plot=latency_figures.tails({name: curves[name] for name in drawn}),
    )
    intro = "Further left and lower is better; a step to the right is a stall."
    return Section(
        anchor, "Latency", "How long calls take", intro, [figure, latency_table(tables, "call")]
    )
