"""The lines of explain on callers: programs, units and mailboxes."""

import shlex
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from spoolscope.cli.output import wrapped

if TYPE_CHECKING:
    from spoolscope.analysis.callers import CallerTime
    from spoolscope.analysis.explain import Explanation

TOP = 8
MOST = 0.5
"""Share of the time from which one program hides what the others wait for."""


def caller_lines(found: "Explanation") -> Iterable[str]:
    """Return the lines of time by program, by unit if there are several, and by mailbox."""
    from spoolscope.analysis.callers import NO_UNIT

    callers = found.callers
    yield from _table(found, "program", callers.by_program)
    yield from _hint(found, callers.by_program)
    if any(row.name != NO_UNIT for row in callers.by_unit):
        yield from _table(found, "unit", callers.by_unit)
    if len(callers.by_mailbox) > 1:
        yield from _table(found, "mailbox", callers.by_mailbox)


def _table(found: "Explanation", what: str, rows: Sequence["CallerTime"]) -> Iterable[str]:
    from spoolscope.analysis.wording import count, duration, fitting, percent

    yield ""
    yield f"By {what}, of {duration(found.filesystem_ns)}"
    of = {"program": "pid", "unit": "processes"}.get(what, "")
    width = 11 if of else 0
    yield f"  {what:<21}{of:>{width}}{'calls':>9}{'time':>8}{'share':>8}  mostly"
    for row in rows[:TOP]:
        whose = _processes(row) if of else ""
        share = row.filesystem_ns / found.filesystem_ns if found.filesystem_ns else None
        numbers = f"{count(row.n):>9}{duration(row.filesystem_ns):>8}{percent(share):>8}"
        yield f"  {fitting(row.name, 20):<21}{whose:>{width}}{numbers}  {_mostly(row)}".rstrip()
    if len(rows) > TOP:
        rest = sum(row.filesystem_ns for row in rows[TOP:])
        yield f"  and more, {duration(rest)} in sum (--json has them)"


def _processes(row: "CallerTime") -> str:
    from spoolscope.analysis.wording import count

    return str(row.pid) if row.pid is not None else f"{count(row.processes)} pids"


def _mostly(row: "CallerTime") -> str:
    from spoolscope.analysis.causes import CAUSES, charged

    kept = charged(row.causes)
    cause, ns = max(kept.items(), key=lambda item: item[1], default=("", 0))
    return f"{CAUSES[cause].label} {100 * ns / row.filesystem_ns:.0f} %" if ns else ""


def _hint(found: "Explanation", rows: Sequence["CallerTime"]) -> Iterable[str]:
    from spoolscope.analysis.wording import percent

    whole = found.filesystem_ns
    if whole and len(rows) > 1 and rows[0].filesystem_ns >= MOST * whole:
        share = percent(rows[0].filesystem_ns / whole, 0)
        yield from wrapped(
            f"{rows[0].name} has {share} of this time: --except {shlex.quote(rows[0].name)} shows "
            "the others by themselves.",
            indent="  ",
        )
