"""The verb plan: what a replay would do, and which calls wait for which, and why."""

import shlex
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import click

from spoolscope.cli.limits import SEED
from spoolscope.cli.names import marked, named, names_lines, names_options
from spoolscope.cli.output import (
    AT_LENGTH_S,
    emit_json,
    json_option,
    progress,
    quiet_option,
    warn,
    wrapped,
)
from spoolscope.cli.planning import planning_options, what_if
from spoolscope.cli.printing import say
from spoolscope.replay.engine import Engine
from spoolscope.replay.interrupts import ending_on_signals
from spoolscope.replay.outcomes import read_plan
from spoolscope.replay.plan import PlanSummary
from spoolscope.replay.planned import plan
from spoolscope.replay.waiting import explain
from spoolscope.traces.errors import INCOMPLETE
from spoolscope.traces.phases import Phases
from spoolscope.traces.scratch import scratch
from spoolscope.traces.trace import Trace

EPILOG = """\b
Examples:
  spoolscope plan monday.trace
  spoolscope plan monday.trace --explain 2144:57
"""


@click.command(epilog=EPILOG)
@click.argument("trace", type=click.Path(path_type=Path))
@click.option(
    "--explain",
    "call",
    metavar="THREAD:NUMBER",
    help="Say which calls this call waits for, and which wait for it (tid and seq of the trace).",
)
@planning_options
@click.option(
    "--seed",
    type=SEED,
    default=0,
    show_default=True,
    help="Of the times that copies of users begin at.",
)
@names_options
@quiet_option
@json_option
def command(
    trace: Path,
    call: str | None,
    as_json: bool,
    quiet: bool,
    names: bool,
    key_file: Path | None,
    **options: Any,
) -> int:
    """Show what a replay of TRACE would do, without doing it.

    Calls by process, what is left out and why, which calls wait for which,
    and the space it takes. Needs neither root nor a target.
    """
    opened, asked = named(Trace.open(trace), key_file, wanted=names), what_if(options)
    said = names_lines(opened, key_file)
    lengths = {"building the plan": 2, "ordering its calls": 3}
    shown = progress(quiet=quiet, after_s=AT_LENGTH_S)
    with (
        ending_on_signals(),
        shown as report,
        tempfile.TemporaryDirectory(dir=scratch()) as place,
    ):
        file = Path(place) / "replay.plan"
        show = Phases(report, lengths)
        summary, changed = plan(opened, file, asked, lambda done: show("building the plan", done))
        engine = Engine(file)
        if changed is not None:
            warn(changed["sentence"])
        if call is not None:
            show("ordering its calls")
            found = explain(opened, read_plan(file), engine, options["order"], call)
            said_why = (line for one in found for line in _why(one))
            lines = [part for line in said_why for part in _folded(line)]
            calls = [marked(one, opened) for one in found]
            _print(calls, [*lines, *said], as_json=as_json)
        else:
            show("ordering its calls")
            whole = summary.as_dict() | engine.order()
            whole |= engine.explain(options["order"], [])
            whole.pop("path")
            whole.pop("explained")
            words = " ".join(shlex.quote(word) for word in (str(trace), *asked.options()))
            then = f"Next: sudo spoolscope replay {words} --on ext4 --on xfs -o OUT"
            lines = [*_whole(summary, whole), *said, then]
            _print(marked(whole, opened), lines, as_json=as_json)
    return 0 if opened.meta.get("complete") else INCOMPLETE


def _print(found: Any, lines: Iterable[str], *, as_json: bool) -> None:
    if as_json:
        emit_json(found)
    else:
        say(*lines)


def _whole(summary: PlanSummary, found: dict[str, Any]) -> Iterable[str]:
    mib = 1 << 20
    yield f"{summary.syscalls:>12,}  calls"
    yield f"{summary.ops:>12,}  operations, with process life and what was held at start"
    length = f"{summary.duration_ns / 1e9:,.2f} s"
    yield f"{summary.threads:>12,}  threads, those without calls of their own included, in {length}"
    left = {
        "calls before, which the snapshot has the effects of": summary.before_start,
        "calls never returned": summary.in_flight,
        "calls of unknown threads": summary.strangers,
        "calls on other filesystems, mounted below the spool meanwhile": summary.elsewhere,
        "calls through symlinks, by the names that these stood for": summary.followed,
        "locks and mappings at start cannot be had again": summary.held_skipped,
        "calls have a result that no order explains": found["unexplained"],
        **{f"{name}: not replayed": n for name, n in found["unsupported"].items()},
        **{f"{name} left out on purpose": n for name, n in summary.left_out.items()},
    }
    yield from (f"{n:>12,}  {what}" for what, n in left.items() if n)
    yield f"{found['fixture_names']:>12,}  names at start, {found['fixture_bytes'] / mib:,.1f} MiB"
    yield f"{found['peak_bytes'] / mib:>12,.1f}  MiB that all files need at most"
    yield f"{found['contests']:>12,}  contests for names between overlapping calls"
    yield ""
    yield "Edges, besides the order of each thread:"
    yield from (f"{n:>12,}  {kind}" for kind, n in found["edges"].items())


def _why(found: dict[str, Any]) -> Iterable[str]:
    yield _call(found["call"])
    if found["previous"] is not None:
        yield f"  its thread did before: {_call(found['previous'])}"
    if found["may_sleep"]:
        yield "  may sleep for a lock in the kernel: its holder is no edge"
    if found["unexplained"]:
        yield "  no order of overlapping calls explains its result"
    for title, edges in (
        ("waits for", found["waits"]),
        ("comes after, by an earlier wait of its thread,", found["covered"]),
        ("is waited for by", found["waited_by"]),
    ):
        for edge in edges:
            yield f"  {title} {_call(edge['call'])}"
            whose = "that one" if title.startswith("is") else "this one"
            yield f"      {whose} {edge['reason']}"
    if not found["waits"]:
        yield "  waits for no other thread"


def _folded(line: str) -> list[str]:
    text = line.lstrip()
    return wrapped(text, " " * (len(line) - len(text)))


def _call(call: dict[str, Any]) -> str:
    names = " -> ".join(name for name in (call["path"], call["path2"]) if name is not None)
    what = f"{call['syscall']} {names}".rstrip() + f" = {call['ret']}"
    if not call["recorded"]:
        return f"{what} (no recorded call)"
    who = f"{call['tid']}:{call['seq']} {call['comm']}"
    return f"{who} at {call['at_ns'] / 1e9:.6f} s: {what}"
