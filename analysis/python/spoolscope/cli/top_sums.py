"""The view of top by program: sums of calls, as roll-ups keep them."""

import time
from collections.abc import Iterator
from dataclasses import replace
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


def show_sums(
    request: "Request",
    interval_s: float,
    rows: int,
    *,
    clear: bool,
    names: bool,
    form: str | None,
) -> int:
    """Print each interval until the time is up or Ctrl-C; return the exit code."""
    from spoolscope.analysis.programs_now import use_of
    from spoolscope.tracers.live_sums import LiveSums

    live = LiveSums(replace(request, rollup_s=interval_s, cause_rules=all_cause_rules()))
    printer = FormPrinter(form, names=names) if form else None
    lost = 0
    for summed in live.intervals():
        found = use_of(summed.calls(live.names), summed.commits(live.names), summed.content)
        lost += found.lost
        if printer:
            printer.show(found.to_json(), "programs")
            continue
        if clear:
            click.clear()  # does nothing unless stdout is a terminal
        say(*lines(found, rows), *of_hidden(found, rows), "")
    if live.failure:
        warn(f"the recorder ended early: {live.failure}")
    if lost:
        warn(f"{lost:,} calls are in no sum: a table of the kernel was full")
    return INCOMPLETE if lost or live.failure else 0


def lines(found: "SummedInterval", rows: int) -> Iterator[str]:
    """Yield the lines of an interval, with so many programs."""
    from spoolscope.analysis.wording import count, duration

    clock = time.strftime("%H:%M:%S", time.localtime(found.start_ns / 1e9))
    calls = sum(use.calls for use in found.programs)
    cost = 100 * found.recorder_ns / max(found.duration_ns, 1)
    lost = f", LOST {count(found.lost)}" if found.lost else ""
    yield (
        f"{clock}, {duration(found.duration_ns)}: {count(calls)} calls, {count(found.commits)} "
        f"commits of {duration(found.commit_ns)}{lost}; this view: {cost:.1f} % of a CPU"
    )
    yield (
        f"{'COMM':<15} {'UNIT':<24} {'CALLS':>7} {'FAILED':>6} {'TIME':>8} {'BLOCKED':>8} "
        f"{'COMMITS':>7}  MOSTLY"
    )
    for use in found.programs[:rows]:
        times = f"{duration(use.time_ns):>8} {duration(use.blocked_ns):>8}"
        yield (
            f"{shown(use.comm):<15} {_end(shown(use.unit)):<24} {use.calls:>7} {use.failed:>6} "
            f"{times} {use.commits:>7}  {_mostly(use.causes, use.time_ns)}"
        )


def of_hidden(found: "SummedInterval", rows: int) -> Iterator[str]:
    """Yield a line on hidden names, if there are any."""
    if any(use.comm.startswith(HIDDEN.decode()) for use in found.programs[:rows]):
        yield "Names that begin with + are hidden; --names shows them."


def _end(unit: str) -> str:
    """Return the end of a long name: that of a control group begins as many others do."""
    return unit if len(unit) <= _WIDTH else f"…{unit[1 - _WIDTH :]}"


_WIDTH = 24


def _mostly(causes: dict[str, int], time_ns: int) -> str:
    from spoolscope.analysis.causes import CAUSES

    return ", ".join(
        f"{CAUSES[cause].label} {100 * ns / time_ns:.0f} %"
        for cause, ns in list(causes.items())[:2]
        if time_ns
    )
