"""Calls of the native program that makes the loads."""

import subprocess

from spoolscope.traces.errors import SpoolscopeError
from spoolscope.traces.native import find_binary

PROGRAM = "spoolscope-workload"


def command(*words: str) -> list[str]:
    """Return the command that starts it.

    Raises:
        SpoolscopeError: the program is missing.
    """
    return [str(find_binary(PROGRAM)), *words]


def call(words: list[str]) -> str:
    """Run a command, and return its output.

    Raises:
        SpoolscopeError: it failed; the message is its own.
    """
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        said = done.stderr.strip().splitlines() or [f"status {done.returncode}"]
        first = next((line for line in said if "error: " in line), said[-1])
        own = next(place for place, word in enumerate(words) if word.endswith(PROGRAM))
        raise SpoolscopeError(
            f"{' '.join(words[own + 1 : own + 3])} failed: {first.rpartition('error: ')[2]}",
            remedy="try another candidate or a smaller --scale, or run 'make setup' again",
        )
    return done.stdout
