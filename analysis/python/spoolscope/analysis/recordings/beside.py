"""The metrics that are shown beside the time of a call; --fail-if accepts these and others."""

from spoolscope.analysis.demands.language import Metric
from spoolscope.analysis.wording import FAR, duration, percent, size

BESIDE = (
    "calls",
    "deliveries",
    "commits",
    "flushes",
    "requests",
    "written bytes",
    "mean of sync",
    "p99 of sync",
    "p99 of open",
    "p99 of rename",
    "p99 of unlink",
    "calls over 10 ms",
    "calls over 100 ms",
    "calls per delivery",
    "syncs per delivery",
    "commits per delivery",
    "requests per delivery",
    "flushes per delivery",
    "written bytes per delivery",
)


def shown(metric: Metric, value: float) -> str:
    """Return a value of a metric with its unit; "-" if it is not known."""
    if value != value:
        return "-"
    if metric.unit == "ns":
        return duration(value)
    if metric.unit == "share":
        return percent(value, 2)
    per = "/s" if metric.per == "second" else ""
    few = f"{value:.3g}" if value < 999.5 else f"{value:,.0f}"
    return f"{size(value) if metric.name.endswith('bytes') else few}{per}"


def times_as_many(ratio: float) -> str:
    """Return a ratio with three digits or more, e.g. "1.07 x", "161 x"; "-" if it is not known."""
    if ratio != ratio:
        return "-"
    if ratio >= FAR:
        return f"{FAR:,}+ x"
    return f"{ratio:.2f} x" if ratio < 10 else f"{ratio:.3g} x"
