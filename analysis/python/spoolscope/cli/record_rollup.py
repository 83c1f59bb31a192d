"""The part of the verb record that keeps sums instead of calls: --rollup."""

import re
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import asdict, replace
from pathlib import Path
from shlex import quote

from spoolscope.analysis.wording import counted, duration
from spoolscope.cli.freeze_rules import all_cause_rules
from spoolscope.cli.output import emit_json, warn, wrote
from spoolscope.cli.printing import say
from spoolscope.cli.service import notify, own_command, succeeded_by
from spoolscope.cli.upkeep import Upkeep
from spoolscope.replay.interrupts import ending_on_signals
from spoolscope.tracers.request import Request
from spoolscope.tracers.rolling import RolledUp, record_rollups
from spoolscope.traces.digests import META
from spoolscope.traces.errors import ERROR, INCOMPLETE, USAGE, SpoolscopeError
from spoolscope.traces.phases import Progress
from spoolscope.traces.recording import CONTROL

TAKE_OVER = "--take-over"
_SUMMING = ("taking the snapshot", "recording")
"""Phases of a recording in which calls are summed."""


def refuse_for_rollup(request: Request) -> None:
    """Refuse what does not go with --rollup.

    Raises:
        SpoolscopeError: an option asks for records of all calls, or for fewer calls.
    """
    refused = {
        "--rotate": request.rotate,
        "--blktrace": request.blktrace,
        "--max-overhead": request.max_overhead_percent,
        "--user-stacks": request.user_stacks and not request.last,
    }
    if given := [option for option, value in refused.items() if value]:
        raise SpoolscopeError(
            f"--rollup sums all calls and keeps none: it does not go with {given[0]}",
            remedy="leave one out; --last 5m keeps the calls of a window",
            exit_code=USAGE,
        )
    if any((request.output / name).is_file() for name in (META, CONTROL)):
        raise SpoolscopeError(
            f"{request.output} is a recording, not a directory of roll-ups",
            remedy="give another -o",
            exit_code=USAGE,
        )


def record_sums(
    request: Request,
    show: AbstractContextManager[Progress],
    made: Callable[[Path], None],
    upkeep: Upkeep,
    *,
    take_over: bool,
    as_json: bool,
) -> int:
    """Record roll-ups, report on them, and return the exit code.

    On SIGUSR2 the same command begins again beside this one, and takes over.
    """
    request = replace(request, cause_rules=all_cause_rules())
    words = [] if request.command else own_command(TAKE_OVER)
    with ending_on_signals(), show as progress, succeeded_by(words) as successor:
        try:
            done = record_rollups(
                request, _ready_at(progress), warn_of, made, each=upkeep, take_over=take_over
            )
        finally:
            upkeep.end()
        successor.took_over = done.handed_over
    if as_json:
        emit_json(asdict(done))
    else:
        say(_recorded(done))
    if successor.died:
        warn("the recorder that took over has ended, and nothing is recorded: start it again")
    elif done.handed_over:
        say("Another recorder has taken over", err=True)
    if done.failure:
        warn(f"the recorder ended early: {done.failure}")
    missed = () if done.failure else (*done.unmounted, *done.hidden)
    for spool in missed:
        warn(f"{spool} was unmounted, or hidden: of what was done after that nothing may be summed")
    if done.lost:
        warn(f"{done.lost:,} calls are in no sum: a table of the kernel was full")
    if done.command_status:
        warn(f"the command ended with status {done.command_status}")
    if not done.calls:
        warn("no call touched the spool: is it the right directory, was there any load?")
    if not as_json:
        wrote(done.directory, f"spoolscope fleet report {quote(str(done.directory))}")
    if successor.died:
        return ERROR  # a service manager starts it again
    return INCOMPLETE if done.failure or done.lost or missed else 0


def _ready_at(progress: Progress) -> Progress:
    """Return a display of progress that tells a service manager what the recorder does.

    It is ready once calls are summed, which goes on during the snapshot for a flight recorder: that
    of a spool of very many names takes longer than a service manager waits.
    """
    said = ""

    def show(phase: str, share: float | None) -> None:
        nonlocal said
        doing = next((one for one in _SUMMING if phase.startswith(one)), said)
        if doing != said:
            notify(STATUS=doing, **({} if said else {"READY": 1}))
            said = doing
        progress(phase, share)

    return show


def _recorded(done: RolledUp) -> str:
    # A recording begins and ends within minutes of the clock: their number is not its length.
    length = duration(done.covered_ns)
    rows = f"sums of {counted(done.minutes, 'minute')}"
    return f"{done.calls:,} calls in {length}, {rows}, lost {done.lost:,}{_cost(done)}"


def _cost(done: RolledUp) -> str:
    if not done.covered_ns:
        return ""
    return f"; the recorder took {100 * done.recorder_ns / done.covered_ns:.2g} % of a CPU"


_NS = re.compile(r"\b(\d+) ns\b")


def warn_of(what: str) -> None:
    """Print what a recording says while it runs; the recorder gives all times in ns."""
    warn(f"the recording {_NS.sub(lambda found: duration(int(found[1])), what)}")
