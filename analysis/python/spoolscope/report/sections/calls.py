"""The section on time by call and cause."""

from spoolscope.analysis.causes import charged
from spoolscope.report.figures import causes as cause_figures
from spoolscope.report.inputs import Inputs, Studies
from spoolscope.report.page import Figure, Section

anchor = "calls"
TOP_CALLS = 10


def applies(page: Inputs) -> bool:
    """Return True if a trace was studied."""
    return bool(page.studies)


def make(page: Inputs) -> Section:
    """Lay out time by call and cause."""
    studies = page.studies
    top = _largest(studies)
    groups = [
        (name, [(call, study.explanation.by_syscall[call].causes) for call in top
                if call in study.explanation.by_syscall])
        for name, study in studies.items()
    ]  # fmt: skip
    rows = [(f"{name}: {call}", causes) for name, part in groups for call, causes in part]
    hidden = max(len(s.explanation.by_syscall) for s in studies.values()) - len(top)
    figure = Figure(
        key="calls",
        title="Time in calls, by call and cause",
        finding=" ".join(
            study.headline if len(studies) == 1 else f"{name}: {study.headline}"
            for name, study in studies.items()
        ),
        caption=f"The {len(top)} calls with most time"
        + (f" ({hidden} more in the table of latencies)" if hidden > 0 else "")
        + f", from the recorded traces. {page.method}",
        table=cause_figures.cause_table(rows, "call"),
        plot=cause_figures.panels(groups),
    )
    return Section(
        anchor, "Calls", "Which calls", "The same time, by the call it was spent in.", [figure]
    )


def _largest(studies: Studies) -> list[str]:
    totals: dict[str, float] = {}
    for study in studies.values():
        for name, call in study.explanation.by_syscall.items():
            totals[name] = totals.get(name, 0) + sum(charged(call.causes).values())
    return sorted(totals, key=lambda name: -totals[name])[:TOP_CALLS]
