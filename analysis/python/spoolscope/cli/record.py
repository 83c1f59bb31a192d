"""The verb record."""

import math
from pathlib import Path
from typing import Any

import click

from spoolscope.cli.output import (
    claim_output,
    emit_json,
    force_option,
    json_option,
    progress,
    quiet_option,
    warn,
    wrote,
)
from spoolscope.replay.interrupts import ending_on_signals
from spoolscope.tracers.session import (
    Request,
    Summary,
    record,
    recover,
    refuse_output_on_spool,
)
from spoolscope.traces.errors import INCOMPLETE, USAGE, SpoolscopeError
from spoolscope.traces.pseudonym import load_key

UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}

EPILOG = """\b
Examples:
  sudo spoolscope record --spool /var/mail -d 60 -o monday.trace
  sudo spoolscope record --spool /srv/mail --unit dovecot --unit postfix@-
  sudo spoolscope record --spool /srv/mail --exe /usr/lib/dovecot/lmtp
  sudo spoolscope record --spool /mnt -o test.trace -- ./deliver-once
"""


class Duration(click.ParamType):  # type: ignore[type-arg,unused-ignore]  # generic since click 8.4
    """Seconds, or a number with ms, s, m or h."""

    name = "duration"

    def convert(self, value: Any, param: Any, ctx: Any) -> float:
        """Return seconds."""
        if isinstance(value, float):
            return value
        digits = value.rstrip("mshn")
        try:
            seconds = float(digits) * UNITS[value[len(digits) :] or "s"]
        except (ValueError, KeyError):
            self.fail(f"{value!r} is not a time such as 30, 500ms, 10s, 5m or 1h", param, ctx)
        if not 0 < seconds < math.inf:
            self.fail("a recording needs a time above 0 that ends", param, ctx)
        return seconds


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
@click.option("-d", "--duration", type=Duration(), help="Stop after this time: 30, 10s, 5m, 1h.")
@click.option("-p", "--pid", "pids", multiple=True, type=int, help="Only this process tree.")
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
    type=click.FloatRange(0, 100, min_open=True),
    metavar="PCT",
    help="Keep to this share of all CPUs: leave out stacks, then most reads and writes.",
)
@click.option("--keep-names", is_flag=True, help="Do not pseudonymise file names.")
@click.option(
    "--key-file", type=click.Path(path_type=Path), help="Key of the pseudonyms (made if missing)."
)
@click.option("--no-snapshot", is_flag=True, help="Leave out the tree; replay must then infer it.")
@click.option(
    "--recover",
    type=click.Path(path_type=Path),
    help="Convert what a killed recording left (.NAME.xxxx).",
)
@force_option
@quiet_option
@json_option
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
def command(**options: Any) -> int:
    """Record the system calls on a mail spool.

    Records every process that touches the spool until the time is up or Ctrl-C;
    with COMMAND, runs it and records only it and its children. Targets (-p, --unit,
    --cgroup, --exe, --comm) may be mixed: whoever is any of them is recorded, and
    whom they start. No mail content is recorded; file names are pseudonymised unless --keep-names.
    """
    as_json, quiet = options.pop("as_json"), options.pop("quiet")
    if options.pop("force"):
        if (options["output"] / "meta.json").is_file():  # a trace, which would now be removed
            refuse_output_on_spool(options["output"], options["spools"])
        claim_output(options["output"], force=True)
    if options["recover"]:
        key = (
            None
            if options["keep_names"]
            else load_key(options["key_file"], outside=options["output"])
        )
        return _report(recover(options["recover"], options["output"], key), as_json=as_json)
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
        snapshot=not options["no_snapshot"],
        key_file=options["key_file"],
        stdout_to_stderr=as_json,
    )
    _check(request)
    with ending_on_signals(), progress(quiet=quiet) as show:
        summary = record(request, show)
    return _report(summary, as_json=as_json)


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


def _report(summary: Summary, *, as_json: bool) -> int:
    meta = summary.meta
    if as_json:
        emit_json({"trace": summary.trace, "command_status": summary.command_status, **meta})
    else:
        n, seconds = meta["counts"]["syscalls"], meta["duration_ns"] / 1e9
        click.echo(f"{n:,} calls in {seconds:.1f} s, lost {meta['lost']:,}, tier {meta['tier']}")
        if meta["shed"]:
            click.echo(f"left out {meta['shed']:,} reads and writes to keep to --max-overhead")
    if summary.failure:
        warn(f"the recorder ended early: {summary.failure}")
    if summary.command_status:
        warn(f"the command ended with status {summary.command_status}")
    if not meta["complete"]:
        warn(f"the trace is incomplete: see 'spoolscope info {summary.trace}'")
    if meta["counts"]["syscalls"] == 0:
        warn("no call touched the spool: is it the right mount point, was there any load?")
    if not as_json:
        wrote(summary.trace, f"spoolscope explain {summary.trace}")
    return 0 if meta["complete"] else INCOMPLETE
