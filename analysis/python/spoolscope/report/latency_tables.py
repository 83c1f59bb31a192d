"""Latencies as tables: percentiles by call, and points of the curves' tails."""

from collections.abc import Mapping, Sequence

from spoolscope.analysis.latency import QUANTILES, Curve, Latency, supported
from spoolscope.analysis.why import family_label
from spoolscope.analysis.wording import duration
from spoolscope.report.figures.base import count_cell, time_cell
from spoolscope.report.page import Table, TableBlock


def latency_table(latencies: Mapping[str, Sequence[Latency]], what: str) -> TableBlock:
    """Return percentiles by call or family of calls, with the candidates side by side."""
    names = list(dict.fromkeys(one.syscall for found in latencies.values() for one in found))
    rows = []
    for call in names:
        for name, found in latencies.items():
            one = next((latency for latency in found if latency.syscall == call), None)
            if one is not None:
                times = (one.total_ns, one.mean_ns, one.p50_ns, one.p90_ns, one.p99_ns)
                rows.append([family_label(call), name, count_cell(one.n),
                             *map(time_cell, (*times, one.p999_ns, one.max_ns))])  # fmt: skip
    needs = ", ".join(f"p{100 * q:g}: {10 / (1 - q):,.0f}" for q in QUANTILES)
    return TableBlock(
        f"Latency by {what}",
        [what, "on", ">n", ">total", ">mean", ">p50", ">p90", ">p99", ">p99.9", ">max"],
        rows,
        f"Exact percentiles. A dash stands for too few calls to say (needed: {needs}).",
    )


def curve_table(curves: Mapping[str, Sequence[Curve]]) -> Table:
    """Return the times that 50 %, 10 %, 1 % and 0.1 % of the calls exceed."""
    rows = []
    for name, found in curves.items():
        for curve in found:
            at = [
                time_cell(over(curve, q)) if supported(curve.n, q) else "-"
                for q in (0.5, 0.9, 0.99, 0.999)
            ]
            rows.append([name, curve.name, count_cell(curve.n), *at])
    heads = ["on", "family", ">n", ">half over", ">10 % over", ">1 % over", ">0.1 % over"]
    return Table(heads, rows)


def tail_finding(curves: Mapping[str, Sequence[Curve]]) -> str:
    """Return a sentence on the family of calls with the longest tail."""
    tails = [
        (over(curve, 0.99), curve, name)
        for name, found in curves.items()
        for curve in found
        if supported(curve.n, 0.99)
    ]
    if not tails:
        return "There are too few calls to say how long one in a hundred takes."
    ns, curve, name = max(tails, key=lambda tail: tail[0])
    on = f" on {name}" if len(curves) > 1 else ""
    return f"One in a hundred calls to {family_label(curve.name)}{on} takes over {duration(ns)}."


def over(curve: Curve, share: float) -> int:
    """Return the least time that this share of the calls does not exceed, ns."""
    return next(x for x, s in zip(curve.x_ns, curve.share, strict=True) if s >= share)
