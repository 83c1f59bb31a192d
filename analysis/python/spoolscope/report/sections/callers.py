"""The section on the callers: programs, units and mailboxes."""

from collections.abc import Sequence

from spoolscope.analysis.callers import NO_UNIT, CallerTime
from spoolscope.analysis.causes import charged
from spoolscope.analysis.study import Study
from spoolscope.analysis.wording import count, duration, percent
from spoolscope.report.figures.base import count_cell, time_cell
from spoolscope.report.inputs import Inputs
from spoolscope.report.page import Section, Split, TableBlock

anchor = "callers"
SHOWN = 15


def applies(page: Inputs) -> bool:
    """Return True if a trace was studied."""
    return bool(page.studies)


def make(page: Inputs) -> Section:
    """Lay out the time by caller."""
    blocks = [block for name, study in page.studies.items() for block in _blocks(name, study)]
    intro = (
        "The same time, by its callers. What one of them spends is not what another waits for: "
        "'spoolscope explain TRACE --only' or '--except' shows some of them by themselves."
    )
    return Section(anchor, "By caller", "Time by caller", intro, blocks)


def _blocks(name: str, study: Study) -> list[TableBlock]:
    callers, total = study.explanation.callers, study.explanation.filesystem_ns
    tables = [("program", callers.by_program), ("mailbox", callers.by_mailbox)]
    if any(row.name != NO_UNIT for row in callers.by_unit):
        tables.insert(1, ("unit", callers.by_unit))
    return [_table(name, what, rows, total) for what, rows in tables if rows]


def _table(name: str, what: str, rows: Sequence[CallerTime], total: int) -> TableBlock:
    shown = rows[:SHOWN]
    left = sum(row.filesystem_ns for row in rows[SHOWN:])
    more = f" Not shown: {count(len(rows) - SHOWN)} more, {duration(left)} in sum." if left else ""
    of_processes = what != "mailbox"
    heads = [">processes"] if of_processes else []
    return TableBlock(
        f"Time by {what}: {name}",
        [f"~{what}", *heads, ">calls", ">time", ">share", "split"],
        [
            [row.name, *([_processes(row)] if of_processes else []), count_cell(row.n),
             time_cell(row.filesystem_ns), percent(row.filesystem_ns / total if total else None),
             Split.of(charged(row.causes))]
            for row in shown
        ],
        f"Of {duration(total)}, the time of all calls without the waits of programs for other "
        f"programs.{more}",
    )  # fmt: skip


def _processes(row: CallerTime) -> str:
    return count(row.processes) if row.pid is None else f"1 (process {row.pid})"
