"""What makes calls slow, what to try, and what that costs."""

from spoolscope.analysis.insights import Insight
from spoolscope.analysis.wording import duration, percent
from spoolscope.report.inputs import Inputs
from spoolscope.report.page import Section, TableBlock

anchor = "insights"


def applies(page: Inputs) -> bool:
    """Whether a rule has found something in a trace."""
    return any(study.explanation.insights for study in page.studies.values())


def make(page: Inputs) -> Section:
    """A table for each trace, the longest time at stake first."""
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
         f"{one.culprit} {one.mechanism}.", one.remedy, one.price, f"{one.code}, see {one.section}"]
        for one in insights
    ]  # fmt: skip
    return TableBlock(
        f"Insights: {name}",
        ["severity", ">at stake", "part", "~what happens", "~try", "~price", "rule"],
        rows,
        f"{len(rows)} rules fired. A severity is high from 40 % of the time on, medium from 20 %; "
        "'spoolscope explain --json' has the numbers that each rests on.",
    )
