"""The verb scrub."""

from pathlib import Path
from shlex import quote

import click

from spoolscope.cli.output import (
    emit_json,
    hide_programs_option,
    json_option,
    key_file_option,
    new_trace_option,
    progress,
    quiet_option,
    wrote,
)
from spoolscope.cli.printing import say
from spoolscope.traces.private import Hiding
from spoolscope.traces.pseudonym import key_id

EPILOG = """\b
Examples:
  spoolscope scrub old.trace -o given-away.trace
  spoolscope scrub monday.trace -o partner.trace --key-file partner.key
  spoolscope scrub rollups -o given-away
"""


@click.command(epilog=EPILOG)
@click.argument("trace", type=click.Path(path_type=Path))
@new_trace_option
@hide_programs_option
@key_file_option
@quiet_option
@json_option
def command(
    trace: Path,
    output: Path,
    hide_programs: bool,
    key_file: Path | None,
    quiet: bool,
    as_json: bool,
) -> int:
    """Copy a trace, or roll-ups, with the names replaced by pseudonyms.

    For a trace recorded with --keep-names, or to give the same trace to
    somebody under another key. TRACE itself is not changed; the copy is
    searched for the hidden names (of 8 bytes or more) before it appears. Given a
    directory of roll-ups, hides those of their hosts, too.
    """
    from spoolscope.traces.rollups.scrubbing import scrub_rollups
    from spoolscope.traces.scrub import scrub

    are_rollups = any(trace.glob("schema=*"))
    hiding = Hiding.by_key_file(key_file, outside=output, programs=hide_programs)
    with progress(quiet=quiet) as show:
        hidden = (scrub_rollups if are_rollups else scrub)(trace, output, hiding, show)
    if as_json:
        facts = {"names_hidden": hidden, "key_id": key_id(hiding.key)}
        emit_json({"trace": str(output), **facts})
    else:
        say(f"{hidden:,} names hidden; none of 8 bytes or more is left in the copy")
        wrote(output, f"spoolscope {'gaps' if are_rollups else 'info'} {quote(str(output))}")
    return 0
