"""The only place of the command line that prints; a test holds every module to it."""

import click

from spoolscope.traces.text import shown


def say(*lines: str, err: bool = False) -> None:
    """Print lines, on stderr with ``err``.

    Each stays one line and cannot drive the terminal, whatever names stand in it: an empty line
    of the layout is a line of its own, never a line end inside one.
    """
    click.echo("\n".join(map(shown, lines)), err=err)


def unsaid(_line: str) -> None:
    """Print nothing, in place of ``say``."""
