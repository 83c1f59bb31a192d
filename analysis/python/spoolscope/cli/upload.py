"""The verb upload."""

import click

from spoolscope.analysis.wording import size
from spoolscope.cli.gaps import hosts_option
from spoolscope.cli.output import emit_json, json_option, progress, quiet_option, warn
from spoolscope.cli.printing import say
from spoolscope.traces.errors import INCOMPLETE
from spoolscope.traces.rollups.names import MARKER

EPILOG = """\b
Examples:
  spoolscope upload /var/lib/spoolscope/rollups s3://mails/fleet
  spoolscope upload /var/lib/spoolscope/rollups /mnt/backup/rollups
"""


@click.command("upload", epilog=EPILOG)
@click.argument("directory")
@click.argument("target")
@hosts_option
@quiet_option
@json_option
def command(directory: str, target: str, hosts: tuple[str, ...], quiet: bool, as_json: bool) -> int:
    """Send the roll-ups of a directory that TARGET lacks.

    TARGET is s3://BUCKET/PREFIX, or another directory, and may hold those of
    many hosts. No sound file there is changed, none here removed. What is sent
    becomes visible when it is whole; a run that was cut off is finished by the
    next one. Credentials come from the usual AWS_... variables and files.
    """
    from spoolscope.traces.rollups.sending import upload

    with progress(quiet=quiet, after_s=1) as show:
        done = upload(directory, target, hosts=hosts or None, progress=show)
    for flush, why in done.damaged.items():
        warn(f"{flush.path(MARKER)} is not sent: {why}")
    for flush in done.different:
        warn(f"{flush.path(MARKER)} is not sent: {target} has it with other rows")
    if as_json:
        damaged = {flush.path(MARKER): why for flush, why in done.damaged.items()}
        different = [flush.path(MARKER) for flush in done.different]
        emit_json({**vars(done), "different": different, "damaged": damaged})
    else:
        say(f"{done.sent:,} flushes sent, {size(done.bytes_sent)}; {done.there:,} were there")
    return INCOMPLETE if done.damaged or done.different else 0
