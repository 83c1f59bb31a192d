"""The view of top by program: sums of calls, as roll-ups keep them."""

import time
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from shutil import get_terminal_size
from typing import TYPE_CHECKING

import click

from spoolscope.cli.freeze_rules import all_cause_rules
from spoolscope.cli.output import warn
from spoolscope.cli.printing import say
from spoolscope.cli.top_forms import FormPrinter
from spoolscope.traces.errors import INCOMPLETE
from spoolscope.traces.pseudonym import HIDDEN
from spoolscope.traces.text import shown

if TYPE_CHECKING:
    from spoolscope.analysis.programs_now import SummedInterval
    from spoolscope.tracers.request import Request

WIDE = 116
"""Columns of a terminal that takes the whole table."""
UNIT, NARROW_UNIT = 24, 14
"""Columns of a unit; of a longer name the end is shown, as control groups begin alike."""
NO_UNIT = "/"
"""Unit of a program in the root control group, which is in no unit."""
DEEPER = "Processes (PIDs), mailboxes and files: --deep"


def show_sums(
    request: "Request",
    interval_s: float,
    rows: int,
    *,
    count: int | None,
    clear: bool,
    names: bool,
    form: str | None,
) -> int:
    """Print so many intervals, or each until Ctrl-C; return the exit code.

    They begin at multiples of their length: the first one shown is mostly shorter.
    """
    from spoolscope.analysis.programs_now import use_of
    from spoolscope.tracers.live_sums import LiveSums

    live = LiveSums(replace(request, rollup_s=interval_s, cause_rules=all_cause_rules()))
    printer = FormPrinter(form, names=names) if form else None
    lost = 0
    width = get_terminal_size().columns
    for summed in islice(live.intervals(), count):
        found = use_of(summed.calls(live.names), summed.commits(live.names), summed.content)
        lost += found.lost
        if printer:
            printer.show(found.to_json(), "programs")
            continue
        if clear:
            click.clear()  # does nothing unless stdout is a terminal
        say(*lines(found, rows, width), DEEPER, *of_hidden(found, rows), "")
    if live.failure:
        warn(f"the recorder ended early: {live.failure}")
    if lost:
        warn(f"{lost:,} calls are in no sum: a table of the kernel was full")
    return INCOMPLETE if lost or live.failure else 0


def lines(found: "SummedInterval", rows: int, width: int = 80) -> Iterator[str]:
    """Yield the lines of an interval, with so many programs.

    In less than ``WIDE`` columns failed calls, blocked time and the second cause are left out.
    """
    from spoolscope.analysis.wording import count, duration, fitting

    clock = time.strftime("%H:%M:%S", time.localtime(found.start_ns / 1e9))
    calls = sum(use.calls for use in found.programs)
    cost = 100 * found.recorder_ns / max(found.duration_ns, 1)
    lost = f", LOST {count(found.lost)}" if found.lost else ""
    yield (
        f"{clock}, {duration(found.duration_ns)}: {count(calls)} calls, {count(found.commits)} "
        f"commits of {duration(found.commit_ns)}{lost}; this view: {cost:.1f} % of a CPU"
    )
    wide = width >= WIDE
    failed, blocked = (f" {'FAILED':>6}", f" {'BLOCKED':>8}") if wide else ("", "")
    room = UNIT if wide else NARROW_UNIT
    yield f"{'COMM':<15} {'UNIT':<{room}} {'CALLS':>7}{failed} {'TIME':>8}{blocked} COMMITS  MOSTLY"
    for use in found.programs[:rows]:
        if wide:
            failed, blocked = f" {use.failed:>6}", f" {duration(use.blocked_ns):>8}"
        unit = "-" if use.unit == NO_UNIT else use.unit
        yield (
            f"{shown(use.comm):<15} {fitting(unit, room):<{room}} {use.calls:>7}{failed} "
            f"{duration(use.time_ns):>8}{blocked} {use.commits:>7}  "
            f"{_mostly(use.causes, use.time_ns, 2 if wide else 1)}"
        )


def of_hidden(found: "SummedInterval", rows: int) -> Iterator[str]:
    """Yield a line on hidden names, if there are any."""
    if any(use.comm.startswith(HIDDEN.decode()) for use in found.programs[:rows]):
        yield "Names that begin with + are hidden; --names shows them."


def _mostly(causes: dict[str, int], time_ns: int, most: int) -> str:
    from spoolscope.analysis.causes import CAUSES

    return ", ".join(
        f"{CAUSES[cause].label} {100 * ns / time_ns:.0f} %"
        for cause, ns in list(causes.items())[:most]
        if time_ns
    )
