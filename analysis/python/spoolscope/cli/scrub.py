"""The verb scrub."""

from pathlib import Path

import click

from spoolscope.cli.output import (
    emit_json,
    json_option,
    key_file_option,
    new_trace_option,
    progress,
    quiet_option,
    wrote,
)
from spoolscope.cli.printing import say
from spoolscope.traces.pseudonym import key_id, load_key

EPILOG = """\b
Examples:
  spoolscope scrub old.trace -o given-away.trace
  spoolscope scrub monday.trace -o partner.trace --key-file partner.key
"""


@click.command(epilog=EPILOG)
@click.argument("trace", type=click.Path(path_type=Path))
@new_trace_option
@key_file_option
@quiet_option
@json_option
def command(trace: Path, output: Path, key_file: Path | None, quiet: bool, as_json: bool) -> int:
    """Copy a trace with its names replaced by pseudonyms.

    For a trace recorded with --keep-names, or to give the same trace to
    somebody under another key. TRACE itself is not changed; the copy is
    searched for the hidden names (of 8 bytes or more) before it appears.
    """
    from spoolscope.traces.scrub import scrub

    key = load_key(key_file, outside=output)
    with progress(quiet=quiet) as show:
        hidden = scrub(trace, output, key, show)
    if as_json:
        emit_json({"trace": str(output), "names_hidden": hidden, "key_id": key_id(key)})
    else:
        say(f"{hidden:,} names hidden; none of 8 bytes or more is left in the copy")
        wrote(output, f"spoolscope info {output}")
    return 0
