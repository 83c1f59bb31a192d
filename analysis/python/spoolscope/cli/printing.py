"""The only module of the command line that prints; a test checks that."""

import click

from spoolscope.traces.text import shown


def say(*lines: str, err: bool = False) -> None:
    """Print lines, on stderr with ``err``.

    Each stays one line and cannot send control sequences to the terminal, whatever names it holds:
    an empty line of the layout is a separate argument, never a line end inside one.
    """
    click.echo("\n".join(map(shown, lines)), err=err)


def unsaid(_line: str) -> None:
    """Print nothing, in place of ``say``."""
