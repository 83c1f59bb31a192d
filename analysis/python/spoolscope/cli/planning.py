"""Options of the verbs that plan a replay: which calls, in which order."""

from collections.abc import Callable
from typing import Any

import click

from spoolscope.cli.limits import Number
from spoolscope.replay.engine import ORDERS
from spoolscope.replay.scaled import MOST
from spoolscope.replay.whatif import WhatIf, parse, parse_scale

_OPTIONS = (
    click.option(
        "--order",
        type=click.Choice(ORDERS),
        default=ORDERS[0],
        show_default=True,
        help="A call waits for those that explain its result (resource), also for all that had "
        "ended when it began (recorded), or for no other thread (none).",
    ),
    click.option(
        "--skip",
        multiple=True,
        metavar="CALL",
        help="Leave out these calls: what do they cost? E.g. fsync, or sync for all of the kind.",
    ),
    click.option(
        "--fsync-every",
        type=Number(1, 1_000_000_000),
        default=1,
        metavar="N",
        help="Make only every N-th fsync and fdatasync of each thread.",
    ),
    click.option(
        "--slice",
        "part",
        metavar="FROM..TO",
        help="Replay only this part of the recording, e.g. 10s..1m, 90.. or ..500ms; what was "
        "before is in the state it begins with.",
    ),
    click.option(
        "--only",
        multiple=True,
        metavar="PROCESS|MAILBOX",
        help="Replay only calls of these (pid, name with *, or directory below the spool), and "
        "those of others that they depend on.",
    ),
    click.option(
        "--scale-users",
        "users",
        type=Number(1, MOST),
        default=1,
        metavar="N",
        help="Replay N times the users: further copies of all mailboxes and processes, with files "
        "of their own, of what --slice and --only leave.",
    ),
    click.option(
        "--scale-window",
        "window",
        metavar="TIME",
        help="Each further copy begins at a random time in it, e.g. 30s or 5m "
        "[a tenth of the recording].",
    ),
)


def planning_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that decide what is replayed."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def what_if(options: dict[str, Any]) -> WhatIf:
    """Return what the options leave out or change on purpose."""
    scale = parse_scale(options["users"], options["window"], options["seed"])
    return parse(options["skip"], options["fsync_every"], options["part"], options["only"], scale)
