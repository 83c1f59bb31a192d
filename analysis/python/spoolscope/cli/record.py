"""The verb record."""

import shlex
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from spoolscope.analysis.beyond import unjudged_calls
from spoolscope.cli.compact import BY_HOUR
from spoolscope.cli.freeze_rules import HELP, FreezeRuleType, cause_rules, refuse_uncounted
from spoolscope.cli.limits import PID, Days, Duration, LimitType, Number, Size
from spoolscope.cli.names import warn_of_book
from spoolscope.cli.output import (
    claim_output,
    emit_json,
    force_option,
    hide_programs_option,
    json_option,
    key_file_option,
    progress,
    quiet_option,
    warn,
    wrote,
)
from spoolscope.cli.printing import say
from spoolscope.cli.record_rollup import TAKE_OVER, record_sums, refuse_for_rollup, warn_of
from spoolscope.cli.upkeep import Upkeep
from spoolscope.replay.interrupts import ending_on_signals
from spoolscope.tracers.asleep import Sleeper, sleepers, still
from spoolscope.tracers.request import Limit
from spoolscope.tracers.session import (
    Request,
    Summary,
    record,
    recover,
    refuse_output_on_spool,
)
from spoolscope.traces.errors import INCOMPLETE, USAGE, SpoolscopeError
from spoolscope.traces.private import Hiding
from spoolscope.traces.recording import DISK_FULL, Recording
from spoolscope.traces.trace import Trace

EPILOG = """\b
Examples:
  sudo spoolscope record --spool /var/mail -d 60 -o monday.trace
  sudo spoolscope record --spool /srv/mail --unit dovecot --unit postfix@-
  sudo spoolscope record --spool /srv/mail --exe /usr/lib/dovecot/lmtp
  sudo spoolscope record --spool /mnt -o test.trace -- ./deliver-once
  sudo spoolscope record --spool /var/mail --rotate 1h --keep 48 -o mail.rec
  sudo spoolscope record --spool /var/mail --last 5m --freeze-on slow=1s
  sudo spoolscope record --spool /var/mail --rollup \\
    -o /var/lib/spoolscope/rollups

\b
With --rotate the output is a directory of traces: trace-000001,
trace-000002, ... Each appears when it is whole, while recording goes on.
With --last it holds frozen-000001, ...: the last window before each
freeze, and before the end. 'spoolscope info' works on each and on all.
"""


@click.command(epilog=EPILOG)
@click.option(
    "--spool",
    "spools",
    multiple=True,
    type=click.Path(path_type=Path),
    help="Mount point to record; may be repeated.",
)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    default=Path("spool.trace"),
    show_default=True,
    help="Trace directory to write.",
)
@click.option(
    "-d",
    "--duration",
    type=Duration(),
    help="Stop after this time, the snapshot included: 30, 10s, 5m.",
)
@click.option("-p", "--pid", "pids", multiple=True, type=PID, help="Only this process tree.")
@click.option("--unit", "units", multiple=True, help="Only this systemd unit.")
@click.option("--cgroup", "cgroups", multiple=True, help="Only this cgroup directory.")
@click.option(
    "--exe",
    "exes",
    multiple=True,
    type=click.Path(path_type=Path),
    help="Only processes that run this program, and their children.",
)
@click.option("--comm", "comms", multiple=True, help="Only threads of this name.")
@click.option(
    "--max-overhead",
    type=Number(0.001, 100.0, whole=False),
    metavar="PCT",
    help="Keep to this share of all CPUs: leave out stacks, then most reads and writes.",
)
@click.option("--keep-names", is_flag=True, help="Do not pseudonymise file names.")
@hide_programs_option
@key_file_option
@click.option(
    "--snapshot-rate",
    type=Number(1, 1_000_000_000),
    help="Look at at most so many names of the tree a second.",
)
@click.option(
    "--snapshot",
    type=click.Choice(["full", "touched", "none"]),
    default="full",
    show_default=True,
    help="The tree at start: all of it, the directories that calls use, none (replay then infers).",
)
@click.option("--blktrace", is_flag=True, help="Add the stages of every block request.")
@click.option(
    "--rotate", type=LimitType(), help="Begin a new trace after this size or time: 64M, 1h."
)
@click.option("--last", type=LimitType(), help="Flight recorder: keep only the last 5m, or 2G.")
@click.option(
    "--rollup",
    is_flag=True,
    help="Keep sums of calls by minute instead of calls, for good; -o may be there already.",
)
@click.option("--retain", type=Days(), help="With --rollup: remove days that are older: 90d.")
@click.option(
    BY_HOUR, type=Days(), help="With --rollup: sum each hour up of days that are older: 30d."
)
@click.option("--quota", type=Size(), help="With --rollup: remove the oldest days beyond this: 2G.")
@click.option(
    TAKE_OVER,
    is_flag=True,
    help="With --rollup: end the recorder that writes to -o, when this one records.",
)
@click.option("--keep", type=Number(1, 1_000_000), help="Keep the newest N traces (with these).")
@click.option(
    "--freeze-on",
    type=FreezeRuleType(),
    multiple=True,
    help=HELP,
)
@click.option(
    "--on-freeze",
    metavar="COMMAND",
    help="Run this with the path of each trace that was frozen, but for that of the end.",
)
@click.option(
    "--user-stacks",
    is_flag=False,
    flag_value="sync",
    type=click.Choice(["sync", "all"]),
    help="Note which code makes calls that sync, or all: by frame pointers.",
)
@click.option(
    "--sample-hz",
    type=Number(0, 10_000),
    default=199,
    show_default=True,
    help="Look so often at what running calls do; 0: never.",
)
@click.option(
    "--ring-mib", type=Number(1, 1 << 20), help="Kernel memory for records not yet read, MiB."
)
@click.option(
    "--recover",
    type=click.Path(path_type=Path),
    help="Convert what a killed recording left (.NAME.xxxx, or its -o).",
)
@force_option
@quiet_option
@json_option
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
def command(**options: Any) -> int:
    """Record the system calls on a mail spool.

    Records every process that touches the spool until the time is up or Ctrl-C;
    with COMMAND, runs it and records only it and its children. Targets (-p, --unit,
    --cgroup, --exe, --comm) may be mixed: a process that is any of them is recorded,
    and those it starts. No mail content is recorded; file names are pseudonymised unless
    --keep-names, those of programs where they are names of mailboxes, users or files.
    """
    as_json, quiet = options.pop("as_json"), options.pop("quiet")
    force = options.pop("force")
    if force and (options["output"] / "meta.json").is_file():  # a trace, which will be removed
        refuse_output_on_spool(options["output"], options["spools"])
    if options["rollup"]:
        return _record(options, as_json=as_json, quiet=quiet)
    inputs = [options["recover"]] if options["recover"] else []
    with claim_output(options["output"], force=force, inputs=inputs):
        return _record(options, as_json=as_json, quiet=quiet)


def _record(options: dict[str, Any], *, as_json: bool, quiet: bool) -> int:
    if options["recover"]:
        hiding = (
            None
            if options["keep_names"]
            else Hiding.by_key_file(
                options["key_file"],
                outside=options["output"],
                programs=options["hide_programs"],
            )
        )
        with progress(quiet=quiet) as show:
            summary = recover(options["recover"], options["output"], hiding, show)
        return _report(summary, as_json=as_json)
    request = Request(
        spools=list(options["spools"]),
        output=options["output"],
        command=list(options["command"]) or None,
        duration_s=options["duration"],
        pids=list(options["pids"]),
        cgroups=list(options["cgroups"]),
        units=list(options["units"]),
        exes=list(options["exes"]),
        comms=list(options["comms"]),
        max_overhead_percent=options["max_overhead"],
        keep_names=options["keep_names"],
        hide_programs=options["hide_programs"],
        snapshot=options["snapshot"],
        snapshot_rate=options["snapshot_rate"],
        key_file=options["key_file"],
        blktrace=options["blktrace"],
        stdout_to_stderr=as_json,
        ring_mib=options["ring_mib"],
        sample_hz=options["sample_hz"],
        user_stacks=options["user_stacks"],
        rotate=options["rotate"] or Limit(),
        keep=options["keep"],
        last=options["last"] or Limit(),
        freeze_on=options["freeze_on"],
        cause_rules=cause_rules(options["freeze_on"]),
        on_freeze=shlex.split(options["on_freeze"] or ""),
    )
    _check(request)
    if options["rollup"]:
        refuse_for_rollup(request)
        return record_sums(
            request,
            progress(quiet=quiet),
            _made,
            Upkeep(request.output, options["retain"], options["quota"], options["by_hour"]),
            take_over=options["take_over"],
            as_json=as_json,
        )
    _refuse_for_traces(options)
    asleep = sleepers()
    with ending_on_signals(), progress(quiet=quiet) as show:
        summary = record(request, show, warn_of, _made)
    _warn_of_sleepers(still(asleep))
    return _report(summary, as_json=as_json, command=bool(request.command))


def _warn_of_sleepers(slept: Sequence[Sleeper]) -> None:
    if not slept:
        return
    from spoolscope.analysis.hangs import slept_through  # its rules take a while to read

    for sentence in slept_through([(one.comm, one.pid, one.frames) for one in slept]):
        warn(sentence)


def _refuse_for_traces(options: dict[str, Any]) -> None:
    if any(options[name] for name in ("retain", "quota", "by_hour", "take_over")):
        raise SpoolscopeError(
            f"--retain, --quota, {BY_HOUR} and {TAKE_OVER} are for roll-ups",
            remedy="add --rollup",
            exit_code=USAGE,
        )


def _made(trace: Path) -> None:
    """Print by which call a flight recorder was frozen, as soon as that is known."""
    from spoolscope.analysis.frozen import frozen_words

    if said := frozen_words(Trace.open(trace)):
        say(f"{trace.name}: {said}", err=True)


def _check(request: Request) -> None:
    if not request.spools:
        raise SpoolscopeError(
            "no spool named", remedy="give its mount point: --spool /var/mail", exit_code=USAGE
        )
    targets = (request.pids, request.units, request.cgroups, request.exes, request.comms)
    if request.command and any(targets):
        raise SpoolscopeError(
            "a COMMAND is its own filter",
            remedy="leave out -p, --unit, --cgroup, --exe, --comm",
            exit_code=USAGE,
        )
    if request.rotate and request.last:
        raise SpoolscopeError(
            "--rotate keeps everything, --last only a window", remedy="give one", exit_code=USAGE
        )
    if request.blktrace and request.is_series:
        raise SpoolscopeError(
            "--blktrace adds to one trace", remedy="leave out --rotate and --last", exit_code=USAGE
        )
    if request.keep and not request.is_series:
        raise SpoolscopeError(
            "--keep counts traces", remedy="give --rotate or --last", exit_code=USAGE
        )
    if request.freeze_on and not request.last:
        raise SpoolscopeError(
            "--freeze-on needs a flight recorder", remedy="give --last 5m", exit_code=USAGE
        )
    refuse_uncounted(request.freeze_on, request.spools)
    if request.on_freeze and not request.last:
        raise SpoolscopeError(
            "--on-freeze needs a flight recorder", remedy="give --last 5m", exit_code=USAGE
        )
    if request.on_freeze and shutil.which(request.on_freeze[0]) is None:
        raise SpoolscopeError(
            f"--on-freeze: there is no command {request.on_freeze[0]}",
            remedy="give its path; for a pipeline sh -c '...' sh",
            exit_code=USAGE,
        )


def _report(summary: Summary, *, as_json: bool, command: bool = False) -> int:
    meta = summary.meta
    if as_json:
        emit_json({"trace": summary.trace, "command_status": summary.command_status, **meta})
    else:
        n, seconds = meta["counts"]["syscalls"], meta["duration_ns"] / 1e9
        say(f"{n:,} calls in {seconds:.1f} s, lost {meta['lost']:,}, tier {meta['tier']}")
        if meta["shed"]:
            say(f"left out {meta['shed']:,} reads and writes to keep to --max-overhead")
    if summary.failure:
        warn(f"the recorder ended early: {summary.failure}")
    for mount in summary.unmounted:
        warn(
            f"the spool {mount} was unmounted: of what was done after that nothing may be recorded;"
            " mount it and record again"
        )
    for sentence in unjudged_calls(meta):
        warn(sentence)
    if not summary.ready:
        begun = ", and COMMAND did not begin" if command else ""
        warn(
            f"the recording ended before the snapshot was whole{begun}: give it more time,"
            " or --snapshot touched"
        )
    if meta.get("ended") == DISK_FULL:
        warn("the recording ended early: the disk of its output was full")
    if summary.command_status:
        warn(f"the command ended with status {summary.command_status}")
    if (meta.get("block_trace") or {}).get("lost"):
        warn(f"{meta['block_trace']['lost']:,} block events were lost: block_stages has holes")
    if not meta["complete"]:
        warn(f"the trace is incomplete: see 'spoolscope info {summary.trace}'")
    warn_of_book(meta)
    divided = Recording.is_one(summary.trace)
    if meta["counts"]["syscalls"] == 0 and divided:
        warn("no call is in the traces that are kept: was there any load in their time?")
    elif meta["counts"]["syscalls"] == 0:
        warn("no call touched the spool: is it the right directory, was there any load?")
    if not as_json:
        then = "info" if divided else "explain"
        wrote(summary.trace, f"spoolscope {then} {shlex.quote(str(summary.trace))}")
    return 0 if meta["complete"] else INCOMPLETE
