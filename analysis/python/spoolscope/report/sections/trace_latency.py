"""Distributions and percentiles of the calls of a trace."""

from spoolscope.report.figures import latency as latency_figures
from spoolscope.report.inputs import Inputs
from spoolscope.report.latency_tables import curve_table, latency_table, tail_finding
from spoolscope.report.page import Figure, Section

anchor = "latency"


def applies(page: Inputs) -> bool:
    """Return True if the page is about a single trace."""
    return page.found is None


def make(page: Inputs) -> Section:
    """Lay out latency by call, and the tails by family of calls."""
    studies = page.studies
    calls = {
        name: [call.latency for call in found.explanation.by_syscall.values()]
        for name, found in studies.items()
    }
    curves = {name: found.curves for name, found in studies.items()}
    figure = Figure(
        key="tails",
        title="Share of calls that took longer",
        finding=tail_finding(curves),
        caption=f"Both axes are logarithmic. {page.source} Families with fewer than 100 calls "
        "are left out; curves are thinned to 800 points or fewer, densest in the tail.",
        table=curve_table(curves),
        plot=latency_figures.tails(curves),
    )
    table = latency_table(calls, "call")
    intro = "Further left and lower is better; a step to the right is a stall."
    return Section(anchor, "Latency", "How long calls take", intro, [figure, table])
