"""The table of the fault injection: as text, as Markdown, as JSON."""

import os
import platform
import shlex
import textwrap
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Any

from spoolscope.analysis.causes import CAUSES, MACHINE
from spoolscope.analysis.wording import count, duration, percent
from spoolscope.lab.faults import FAULTS
from spoolscope.lab.suite import Outcome

TOP_GOAL, TIME_GOAL, CULPRIT_GOAL = 0.98, 0.95, 0.95
"""Least shares of right answers, of injected time that is found, and of right culprits."""

_HEAD = (
    "fault", "on", "judged", "robbed", "right", "direct", "culprit", "injected", "recovered",
    "directly", "beyond", "taken for",
)  # fmt: skip

_ON_TERMINAL = ("fault", "on", "judged", "right", "direct", "culprit", "injected", "recovered")


def passes(outcome: Outcome) -> bool:
    """Return True if an outcome reaches the goals."""
    found = outcome.score
    named = found.n_named is None or found.culprit >= CULPRIT_GOAL
    return found.right >= TOP_GOAL and found.recovered >= TIME_GOAL and named


def to_json(outcome: Outcome) -> dict[str, Any]:
    """Return one row as an object."""
    found = outcome.score
    return {
        "fault": outcome.fault,
        "filesystem": outcome.fstype,
        **asdict(found),
        "right": found.right if found.n_judged else None,
        "direct": found.direct if found.n_judged else None,
        "culprit": found.culprit if found.n_judged and found.n_named is not None else None,
        "recovered": found.recovered if found.injected_ns else None,
        "directly": found.directly if found.injected_ns else None,
        "typical": found.typical if found.injected_ns else None,
        "beyond": found.beyond if found.injected_ns else None,
        "causes": outcome.explanation.causes,
        "sum_error_ns": outcome.explanation.split.sum_error_ns,
        "passes": passes(outcome),
    }


def text(outcomes: Sequence[Outcome]) -> Iterable[str]:
    """Yield the table for a terminal of 80 columns: figures with goals, and wrong answers."""
    widths = (21, 7, 7, 9, 9, 9, 9, 0)
    for row in (_HEAD, *map(_row, outcomes)):
        row_by_name = dict(zip(_HEAD, row, strict=True))
        cells = (row_by_name[head] for head in _ON_TERMINAL)
        yield "".join(
            f"{cell:<{width}}" for cell, width in zip(cells, widths, strict=True)
        ).rstrip()
        if row != _HEAD and row_by_name["taken for"]:
            yield from textwrap.wrap(
                f"taken for: {row_by_name['taken for']}",
                80,
                initial_indent="  ",
                subsequent_indent="    ",
            )
    hidden = [head for head in _HEAD if head not in (*_ON_TERMINAL, "taken for")]
    yield f"Not shown here: {', '.join(hidden)}; --csv has all."


def markdown(outcomes: Sequence[Outcome], seconds: float, words: Sequence[str] = ()) -> str:
    """Return the published page.

    Args:
        outcomes: Its rows.
        seconds: Duration of each load.
        words: Arguments of the command after ``lab faults``.
    """
    faults = {outcome.fault for outcome in outcomes}
    stolen, ran = (
        sum(outcome.explanation.causes.get(cause, 0) for outcome in outcomes)
        for cause in ("steal", "cpu")
    )
    lines = [
        _INTRODUCTION.format(
            seconds=seconds,
            command=shlex.join(["spoolscope", "lab", "faults", *words]),
            day=time.strftime("%Y-%m-%d", time.gmtime()),
            kernel=platform.release(),
            cpus=os.cpu_count(),
            load=os.getloadavg()[0],
            stolen=percent(stolen / max(1, stolen + ran)),
        ),
        "| " + " | ".join(_HEAD) + " |",
        "|" + "---|" * len(_HEAD),
        *("| " + " | ".join(_row(outcome)) + " |" for outcome in outcomes),
        "",
        f"{sum(map(passes, outcomes))} of {len(outcomes)} rows reach the goals; "
        "those that do not are marked with a cross.",
        "",
        "| fault | what is done, and to what | right causes |",
        "|---|---|---|",
        *(
            f"| {name} | {fault.injects} | {', '.join(sorted(fault.right))} |"
            for name, fault in FAULTS.items()
            if name in faults
        ),
    ]
    if missed := [outcome for outcome in outcomes if not passes(outcome)]:
        lines += ["", "What is known of the rows that do not reach the goals:", ""]
        lines += [f"* **{one.fault}** on {one.fstype}: {_remark(one)}" for one in missed]
    return "\n".join(lines) + "\n"


def _remark(outcome: Outcome) -> str:
    if not outcome.score.n_judged:
        return "the fault held no call for most of its time: nothing to judge."
    if FAULTS[outcome.fault].remark:
        return FAULTS[outcome.fault].remark
    if outcome.score.wrong and outcome.score.wrong.keys() <= MACHINE.keys():
        return "the calls that are not right waited longer for a CPU, or were on one."
    return "not understood."


def _row(outcome: Outcome) -> tuple[str, ...]:
    found = outcome.score
    mistakes = sorted(found.wrong.items(), key=lambda item: -item[1])
    return (
        f"{outcome.fault}{'' if passes(outcome) else ' ✗'}",
        outcome.fstype,
        count(found.n_judged),
        count(found.n_robbed),
        percent(found.right),
        percent(found.direct),
        percent(found.culprit),
        duration(found.injected_ns),
        percent(found.recovered),
        percent(found.directly),
        percent(found.beyond),
        ", ".join(f"{CAUSES[cause].label} {n}" for cause, n in mistakes),
    )


_INTRODUCTION = """# Ground truth

What `spoolscope explain` says where the answer is known. A fault is injected under a mail-like
load of {seconds:g} s, the load is recorded and explained, and the explanation is compared with the
log of what injected the fault: the slow disk, a process that held a lock or a CPU, or the clock
of the process that was limited. Made on {day} on Linux {kernel}, {cpus} CPUs at a load of
{load:.1f}, of whose time in calls the host took {stolen}, by

    sudo {command}

*judged*: as many as 1 % of the victims' calls, the slowest of those during most of which the fault
was at work, and for at least half the delay. Where a process brings the fault about with a slow
disk, that is while the disk delays what this process asked it for, by its log and the recorded
requests: what victims and the kernel's workers read themselves is slow, too, and not that process's
doing. A limit on requests is at work from when a process begins to deliver, by its clock, until the
disk has been asked for all that it writes, by the disk's log. *robbed*: calls as slow that are left
out, as they had no CPU for longer than anything else took: others ran, or the host of this virtual
machine had it, and nobody injected that.

Victims wait for one another: a call that waits for a lock whose holder waits for the slow disk
waits for the disk, and the explanation says both, the lock and what its holder waited for
meanwhile.
So an instant of a call is named right if the explanation names a right cause there, for the call or
for one that it waited for at that very instant, directly or further along the chain; when that
one waited for it at another time does not count.

*right*: judged calls that are named right for longer than what any other cause has beside it (goal:
98 %); *direct*: those whose own largest cause is right. *culprit*: calls charged to the process
that brought the fault about, or to one that waited for it (goal: 95 %; "-" if there is no such
process). *recovered*: of the time for which the fault was at work in calls that it held for most of
theirs, what is named right (goal: 95 %); *directly*: what has a right cause itself. *beyond*: what
is named so in these calls before or after the fault was at work, over the time injected; mostly
what the disk takes by itself and, on a machine that has other work, waits for a CPU on the way
to it. *taken for*: top causes of the calls that are not right.
"""
