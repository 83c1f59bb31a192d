"""The effect of the kernel: each filesystem on newer kernels, against that on the oldest."""

from spoolscope.analysis.compare import Comparison
from spoolscope.analysis.wording import interval
from spoolscope.report.page import TableBlock


def kernels_table(found: Comparison) -> TableBlock:
    """Return a row for each candidate on a newer kernel."""
    return TableBlock(
        "On newer kernels, against the same filesystem on the oldest",
        ["candidate", "against", ">time in calls", ">interval", "verdict"],
        [
            [p.candidate, p.reference, f"{p.primary.ratio:.2f} x",
             interval(p.primary.low, p.primary.high), p.word]
            for p in found.kernels
        ],
        "All but the kernel is the same.",
    )  # fmt: skip
