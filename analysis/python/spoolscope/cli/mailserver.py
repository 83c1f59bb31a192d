"""The verb lab mailserver."""

import os
from contextlib import nullcontext
from pathlib import Path
from shlex import quote
from typing import Any

import click

from spoolscope.cli import limits
from spoolscope.cli.candidates import candidates_option, names_beginning
from spoolscope.cli.devices import asked_devices, device_options
from spoolscope.cli.elsewhere import is_elsewhere, machine_options, run_elsewhere
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
from spoolscope.lab.mailserver.servers import FORMATS, SERVERS
from spoolscope.replay.candidates import parse
from spoolscope.replay.presets import known
from spoolscope.traces.errors import INCOMPLETE, USAGE, SpoolscopeError

EPILOG = """\b
Examples:
  sudo spoolscope lab mailserver --server dovecot --on ext4 -o dovecot.trace
  sudo spoolscope lab mailserver --server dovecot --format mdbox --on xfs \\
    --rate max --clients 16 --seconds 60
  sudo spoolscope lab mailserver --server dovecot --on ext4 -o backup.trace \\
    --package rsync --beside 'rsync -a /run/spool/mail/ /tmp/copy'
  sudo spoolscope lab mailserver --server cyrus --on btrfs --users 300 -o c.trace
  sudo spoolscope lab mailserver --server dovecot --on jfs --vm 6.1 --rate 2 -o j.trace
  sudo spoolscope lab mailserver --server dovecot --on xfs --device /dev/sdx \\
    --format-device /dev/sdx -o x.trace
"""
AS_IT_GOES = "max"
BUSY = 0.8
"""Share of one CPU above which the load generator itself may have been the bottleneck."""


class Rate(click.ParamType):  # type: ignore[type-arg,unused-ignore]
    """Parser of arrivals a second, or ``max``."""

    name = "rate"

    def convert(self, value: Any, param: Any, ctx: Any) -> float | str:
        """Return the number, or max."""
        if value == AS_IT_GOES:
            return AS_IT_GOES
        return float(limits.Number(0.01, 100_000, whole=False).convert(value, param, ctx))


@click.command(epilog=EPILOG)
@click.option("--server", type=click.Choice(list(SERVERS)), required=True, help="Which.")
@click.option("--format", "form", type=click.Choice(FORMATS), help="Of mailboxes [its usual one].")
@click.option(
    "--on",
    "candidate",
    required=True,
    metavar="CANDIDATE",
    shell_complete=names_beginning,
    help="What its mail and its queue are on: as with replay.",
)
@candidates_option
@click.option(
    "--rate",
    type=Rate(),
    default=10.0,
    show_default=True,
    help="Messages and sessions a second, whether it keeps up or not; max: as fast as it goes.",
)
@click.option(
    "--clients",
    type=limits.Number(1, 1000),
    default=8,
    show_default=True,
    help="How many at once with --rate max.",
)
@click.option(
    "--seconds",
    type=limits.Number(1.0, 86_400.0, whole=False),
    default=30.0,
    show_default=True,
    help="Length of the load.",
)
@click.option(
    "--users", type=limits.Number(1, 9999), default=60, show_default=True, help="Mailboxes."
)
@click.option(
    "--messages",
    type=limits.Number(0, 100_000),
    default=10,
    show_default=True,
    help="In each of them when the load begins.",
)
@click.option(
    "--think",
    "think_s",
    type=limits.Number(0.0, 3600.0, whole=False),
    default=0.2,
    show_default=True,
    help="Mean pause in a session, s; none with --rate max.",
)
@click.option(
    "--seed", type=limits.SEED, default=0, show_default=True, help="Of all that is random."
)
@click.option(
    "--beside",
    metavar="COMMAND",
    help="Run this, too, where the server runs: its mail is in /run/spool/mail.",
)
@click.option("--package", "packages", multiple=True, help="Debian package that this takes.")
@click.option(
    "--elsewhere", is_flag=True, help="Mail and queue lie in memory: only --beside uses --on."
)
@device_options
@machine_options
@click.option("--work", type=click.Path(path_type=Path), help="Directory for images [of -o].")
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Trace to record.")
@click.option("--keep-names", is_flag=True, help="Do not pseudonymise file names.")
@hide_programs_option
@key_file_option
@force_option
@quiet_option
@json_option
def command(**options: Any) -> int:
    """Load a real mail server on a candidate, and record it.

    Daemons run as Debian packages have them, unpacked and not installed, in
    namespaces of their own: they are reached from nowhere else, and reach
    nothing. Messages come by SMTP and LMTP, sessions by IMAP and POP3; names,
    passwords and texts are made up. Needs root.

    Exit code 3: some message or session failed, or a recording is incomplete.
    """
    if os.geteuid() != 0:
        raise SpoolscopeError("the lab mounts filesystems", remedy="run with sudo")
    output, asked = options["output"], _asked(options)
    if is_elsewhere([asked.candidate], options):
        return _elsewhere(asked, options)
    claimed = claim_output(output, force=options["force"]) if output else nullcontext()
    with claimed, progress(quiet=options["quiet"]) as show:
        from spoolscope.lab.mailserver.experiment import run

        try:
            done = run(asked, show)
        except KeyboardInterrupt:
            if output and output.exists():
                warn(f"interrupted: {output} holds what came before")
            raise
    if options["as_json"]:
        emit_json(done.to_json())
    else:
        rate = done.asked.load.rate
        asked = "as fast as it goes" if rate is None else f"{rate:g} asked for"
        say(
            f"{done.asked.server}, {done.form}, on {done.asked.candidate.name}: "
            f"{done.outcome.reached_per_s:.2f} messages and sessions a second, {asked}"
        )
        say(*done.outcome.text())
    _warn(done.outcome)
    complete = done.recorded is None or bool(done.recorded.meta["complete"])
    if done.recorded is not None:
        warn_of_book(done.recorded.meta)
        if not complete:
            warn(f"the trace is incomplete: see 'spoolscope info {output}'")
        if not options["as_json"]:
            wrote(output, f"spoolscope explain {quote(str(output))}")
    wrong = done.outcome.failed or done.outcome.left or done.outcome.beside_status
    return 0 if complete and not wrong else INCOMPLETE


def _elsewhere(asked: Any, options: dict[str, Any]) -> int:
    """Run the command in a machine, for which packages are fetched here: it has no network."""
    from spoolscope.lab.mailserver.experiment import fetched

    with progress(quiet=options["quiet"]) as show:
        fetched(asked, show)
    return run_elsewhere(options, options["output"])


def _asked(options: dict[str, Any]) -> Any:
    from spoolscope.lab.mailserver.experiment import Asked
    from spoolscope.lab.mailserver.load import MIX, Load
    from spoolscope.tracers.session import Request

    rate = None if options["rate"] == AS_IT_GOES else options["rate"]
    output = options["output"]
    request = output and Request(
        spools=[],
        output=output,
        keep_names=options["keep_names"],
        hide_programs=options["hide_programs"],
        key_file=options["key_file"],
        stdout_to_stderr=options["as_json"],
    )
    return Asked(
        server=options["server"],
        form=options["form"],
        candidate=parse(options["candidate"], known(options["candidate_files"])),
        users=options["users"],
        messages=options["messages"],
        think_s=0.0 if rate is None else options["think_s"],
        load=Load(options["seconds"], rate, options["clients"], MIX, options["seed"]),
        work=_work(options["work"], output),
        request=request,
        beside=options["beside"],
        packages=options["packages"],
        elsewhere=options["elsewhere"],
        devices=asked_devices(options),
    )


def _work(work: Path | None, output: Path | None) -> Path:
    place = work or (output.absolute().parent if output else Path.cwd())
    if not place.is_dir():
        raise SpoolscopeError(
            f"no such directory: {place}", remedy=f"mkdir -p {place}", exit_code=USAGE
        )
    return place


def _warn(outcome: Any) -> None:
    if outcome.beside_status:
        warn(f"the command beside the server ended with status {outcome.beside_status}")
    if outcome.left:
        warn(f"{outcome.left:,} messages were accepted, and not delivered a minute later")
    if outcome.load_cpu_s > BUSY * outcome.seconds:
        warn(
            f"the load itself took {outcome.load_cpu_s / outcome.seconds:.0%} of a CPU: "
            "the server may be faster than it seems"
        )
