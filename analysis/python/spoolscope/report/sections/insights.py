"""The section on insights: why calls are slow, what to try, and what that costs."""

from markupsafe import Markup

from spoolscope.analysis.insights import Insight
from spoolscope.analysis.wording import duration, percent
from spoolscope.report.inputs import Inputs
from spoolscope.report.page import Section, TableBlock

anchor = "insights"
CIRCUMSTANCES = (
    " Below those that name what to change are circumstances, which all calls meet, such as the "
    "time that a disk takes; their order is not that of the shares."
)


def applies(page: Inputs) -> bool:
    """Return True if there is an insight on a trace."""
    return any(study.explanation.insights for study in page.studies.values())


def make(page: Inputs) -> Section:
    """Lay out a table for each trace, in the order of ``find_insights``."""
    blocks = [
        _table(name, study.explanation.insights)
        for name, study in page.studies.items()
        if study.explanation.insights
    ]
    intro = (
        "Rules look for what is known to make mail servers slow, and say what each remedy costs in "
        "durability or risk. Times at stake may overlap."
    )
    return Section(anchor, "Insights", "What to do about it", intro, blocks)


def _table(name: str, insights: list[Insight]) -> TableBlock:
    rows = [
        [one.severity, duration(one.at_stake_ns), f"{percent(one.share)} of {one.share_of}",
         f"{one.culprit} {one.mechanism}.", one.remedy, one.price, _link(one)]
        for one in insights
    ]  # fmt: skip
    return TableBlock(
        f"Insights: {name}",
        ["severity", ">at stake", "share", "~what happens", "~try", "~price", "rule"],
        rows,
        f"Rules that fired: {len(rows)}. A severity is high from 40 % of the time on, medium from "
        "20 %; 'spoolscope explain --json' has the numbers that each rests on."
        + (CIRCUMSTANCES if any(one.circumstance for one in insights) else ""),
    )


def _link(insight: Insight) -> str:
    """Return the code of the rule, with a link to the section on it."""
    link = '{code}, see <a href="#{section}">{section}</a>'
    return Markup(link).format(code=insight.code, section=insight.section)
