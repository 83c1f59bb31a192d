"""Time by process, call and cause, as an icicle."""

from spoolscope.analysis.process_parts import LARGEST, LEAST_SHARE
from spoolscope.analysis.study import Study
from spoolscope.analysis.time_tree import LEAST, Node
from spoolscope.analysis.wording import duration, percent
from spoolscope.report.figures.base import count_cell, time_cell
from spoolscope.report.figures.icicle import icicle, label
from spoolscope.report.inputs import Inputs
from spoolscope.report.page import Figure, Section, Table

anchor = "where"


def applies(page: Inputs) -> bool:
    """Return True if a trace with calls was studied."""
    return any(study.tree for study in page.studies.values())


def make(page: Inputs) -> Section:
    """Lay out an icicle for each trace."""
    figures = [
        _figure(f"icicle-{number}", name, study, page.method, folded=number > 0)
        for number, (name, study) in enumerate(page.studies.items())
        if study.tree
    ]
    intro = "All time in calls: by process, then by call, then by cause."
    return Section(anchor, "Where", "Where the time goes", intro, figures)


def _figure(key: str, name: str, study: Study, method: str, *, folded: bool) -> Figure:
    return Figure(
        key=key,
        title=f"Time by process, call and cause: {name}",
        finding=_finding(study.tree),
        caption="A click on a part shows it alone; a click on its left end goes back. "
        f"Up to {LARGEST} processes, each with {percent(LEAST_SHARE, 0)} of the time or more, are "
        "parts by themselves, others of a program are one. "
        f"Parts below {percent(LEAST)} of all are put together. {method}",
        table=_table(study.tree),
        plot=icicle(study.tree),
        folded=folded,
    )


def _finding(tree: list[Node]) -> str:
    largest = max((node for node in tree if len(node.path) == 3), key=lambda node: node.ns)
    process, call, _ = largest.path
    share = percent(largest.ns / tree[0].ns, 0)
    return f"The largest part, {share} or {duration(largest.ns)}, is {call} of {process}: " + (
        f"{label(largest)}."
    )


def _table(tree: list[Node]) -> Table:
    total = tree[0].ns
    rows = []
    for node in sorted(tree[1:], key=lambda node: node.path):
        process, call, cause = (*node.path, "", "")[:3]
        rows.append(
            [process, call, label(node) if cause else "", time_cell(node.ns),
             percent(node.ns / total), "" if node.n is None else count_cell(node.n)]
        )  # fmt: skip
    return Table(["process", "call", "cause", ">time", ">share", ">calls"], rows)
