"""Calling a verb from a notebook or a script, as from a shell."""

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

    A process of its own does it: a replay leaves the mounts of the caller alone.

    Args:
        words: The verb and what follows it, without ``--json`` and ``-q``.

    Raises:
        subprocess.CalledProcessError: the command failed; its error is on stderr. Exit code 3,
            a result that is incomplete or weak, is no failure: the object says why.
    """
    command = [*map(str, words), "--json", "-q"]
    say(f"$ spoolscope {shlex.join(command[:-2])}")
    # Warnings go to stderr, and there they stay: a notebook shows both.
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
