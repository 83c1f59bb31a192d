"""The option --names: real names for an operator with the name book of a trace's key."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from spoolscope.cli.output import warn
from spoolscope.traces.errors import USAGE, SpoolscopeError
from spoolscope.traces.reveal import DO_NOT_GIVE_AWAY, RealNames, real_names
from spoolscope.traces.trace import Trace

HINT = "Names are hidden here; --names shows them: this machine has their book."
MARK = f"{DO_NOT_GIVE_AWAY[0].upper()}{DO_NOT_GIVE_AWAY[1:]}."
"""The line of text that marks real names."""
_OPTIONS = (
    click.option(
        "--names",
        is_flag=True,
        help="Show real names, on the machine that recorded; do not give them away.",
    ),
    click.option(
        "--key-file",
        type=click.Path(path_type=Path),
        help="Key that the trace was recorded with, if it was not your own (for --names).",
    ),
)


def names_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options --names and --key-file."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def named(trace: Trace, key_file: Path | None, *, wanted: bool) -> Trace:
    """Return a trace, with real names if wanted or if the trace kept its names.

    Raises:
        SpoolscopeError: the names are not known on this machine.
    """
    if not wanted or not trace.meta.get("pseudonymised"):
        return trace
    book = real_names(trace.meta, key_file)
    if book is None:
        raise SpoolscopeError(
            f"this machine has no book of the names in {trace.path} (key {trace.meta['key_id']})",
            remedy="leave out --names, ask where it was recorded, or give that --key-file",
            exit_code=USAGE,
        )
    return trace.with_names(RealNames.read(book))


def names_lines(trace: Trace, key_file: Path | None) -> list[str]:
    """Return a line that marks real names, or a hint how to see them if this user can; or none."""
    if trace.names is not None:
        return [MARK]
    hidden = trace.meta.get("pseudonymised") and real_names(trace.meta, key_file)
    return [HINT] if hidden else []


def warn_of_book(meta: dict[str, Any]) -> None:
    """Warn if the names of a new trace could not be written into the book."""
    if meta.get("unbooked"):
        warn(f"--names will not know all names of this trace: {meta['unbooked']}")


def marked(facts: dict[str, Any], trace: Trace) -> dict[str, Any]:
    """Return the object that --json prints, marked if it holds real names."""
    return facts if trace.names is None else {"names": DO_NOT_GIVE_AWAY, **facts}
