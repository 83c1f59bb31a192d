"""The options of verbs that show, or write, a part of a trace."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from spoolscope.traces.slices import parse_slice

if TYPE_CHECKING:
    from spoolscope.analysis.selection import Selection

_OPTIONS = (
    click.option(
        "--only",
        multiple=True,
        metavar="PROCESS|MAILBOX",
        help="Show only calls of these: pid, name with *, or directory below the spool.",
    ),
    click.option(
        "--except",
        "but",
        multiple=True,
        metavar="PROCESS|MAILBOX",
        help="Show all calls but those of these.",
    ),
    click.option(
        "--slice",
        "part",
        metavar="FROM..TO",
        help="Show only calls that began in this part of the recording: 10s..1m, 90.. or ..500ms.",
    ),
)


def selection_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options --only, --except and --slice."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def selected(only: tuple[str, ...], but: tuple[str, ...], part: str | None) -> "Selection":
    """Return the selection of these options.

    Raises:
        SpoolscopeError: the part of the time is not valid.
    """
    from spoolscope.analysis.selection import Selection

    return Selection(only, but, None if part is None else parse_slice(part))
