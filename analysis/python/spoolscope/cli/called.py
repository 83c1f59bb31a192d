"""Calls of a verb from a notebook or a script, as from a shell."""

import json
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

from spoolscope.cli.printing import say
from spoolscope.traces.errors import INCOMPLETE


def call(*words: str | Path) -> dict[str, Any]:
    """Print a command, run it, and return the object that it prints with ``--json``.

    The verb runs in a process of its own, so a replay does not change the mounts of the caller.

    Args:
        words: The verb and its arguments, without ``--json`` and ``-q``.

    Raises:
        subprocess.CalledProcessError: the command failed; its error is on stderr. Exit code 3,
            a result that is incomplete or weak, is no failure: the object states why.
    """
    command = [*map(str, words), "--json", "-q"]
    say(f"$ spoolscope {shlex.join(command[:-2])}")
    # Warnings stay on stderr: a notebook shows both streams.
    ran = subprocess.run(
        [sys.executable, "-m", "spoolscope.cli.main", *command],
        stdout=subprocess.PIPE,
        check=False,
        text=True,
    )
    if ran.returncode not in (0, INCOMPLETE):
        raise subprocess.CalledProcessError(ran.returncode, command)
    found: dict[str, Any] = json.loads(ran.stdout)
    return found
