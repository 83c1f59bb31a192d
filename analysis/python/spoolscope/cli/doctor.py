"""The verb doctor."""

import click

from spoolscope.cli.output import emit_json, json_option
from spoolscope.tracers.check import check

EPILOG = """\b
Examples:
  sudo spoolscope doctor
  sudo spoolscope doctor --json
"""


@click.command(epilog=EPILOG)
@json_option
def command(*, as_json: bool) -> int:
    """Say what this machine can trace, and why not.

    Every answer comes from trying. Exit code 1 if no recording is possible here.
    """
    findings, survey = check()
    usable = all(f.ok for f in findings if f.needed)
    if as_json:
        listed = [vars(f) for f in findings]
        emit_json({"usable": usable, "tier": survey.get("tier"), "findings": listed, **survey})
        return 0 if usable else 1
    for finding in findings:
        mark = "ok" if finding.ok else "NO" if finding.needed else "no"
        click.echo(f"{mark:>3}  {finding.name:24} {finding.detail}")
    if usable:
        click.echo("Next: sudo spoolscope record --spool MOUNT -d 60")
    else:
        click.echo("No recording is possible here until the lines marked NO are mended.")
    return 0 if usable else 1
