"""The verb completion: scripts with which a shell completes commands and options."""

import click

from spoolscope.cli.manual.completion import SHELLS, script
from spoolscope.cli.printing import say

EPILOG = """\b
Examples:
  spoolscope completion bash | sudo tee /etc/bash_completion.d/spoolscope
  spoolscope completion zsh > ~/.zfunc/_spoolscope
  spoolscope completion fish > ~/.config/fish/completions/spoolscope.fish
"""


@click.command("completion", epilog=EPILOG)
@click.argument("shell", type=click.Choice(list(SHELLS)))
def command(shell: str) -> int:
    """Print the completion script of a shell.

    A wheel and a package bring these scripts, and man pages, along.
    """
    say(*script(shell).rstrip("\n").split("\n"))
    return 0
