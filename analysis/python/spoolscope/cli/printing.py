"""The only module of the command line that prints; a test checks that."""

import click

from spoolscope.traces.text import shown


def say(*lines: str, err: bool = False) -> None:
    """Print lines, on stderr with ``err``.

    Each stays one line and cannot send control sequences to the terminal, whatever names it holds:
    an empty line of the layout is a separate argument, never a line end inside one.
    """
    try:
        click.echo("\n".join(map(shown, lines)), err=err)
    except BrokenPipeError:
        # click would make exit code 1 of it.
        if not err:
            raise NoReaderError from None


class NoReaderError(Exception):
    """The reader of stdout, such as head, has ended: there is nothing more to do, and no error."""


def unsaid(_line: str) -> None:
    """Print nothing, in place of ``say``."""
