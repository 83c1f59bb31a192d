"""Completion for shells as click makes it: the shell runs the program for candidates."""

import click
from click.shell_completion import get_completion_class

from spoolscope.traces.errors import USAGE, SpoolscopeError

SHELLS = {
    "bash": "share/bash-completion/completions/spoolscope",
    "zsh": "share/zsh/site-functions/_spoolscope",
    "fish": "share/fish/vendor_completions.d/spoolscope.fish",
}
"""Path at which each shell looks for the script, below a prefix such as /usr."""
VARIABLE = "_SPOOLSCOPE_COMPLETE"


def script(shell: str) -> str:
    """Return the script that a shell reads.

    Raises:
        SpoolscopeError: no such shell is known.
    """
    found = get_completion_class(shell)
    if found is None:
        remedy = f"use one of {', '.join(SHELLS)}"
        raise SpoolscopeError(f"no completion for {shell}", remedy=remedy, exit_code=USAGE)
    made = found(click.Group(), {}, "spoolscope", VARIABLE)
    return made.source_template % made.source_vars()
