"""Calls of the native program that makes the loads."""

import subprocess

from spoolscope.traces import native_failures
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
    form = native_failures.environment()
    done = subprocess.run(words, capture_output=True, text=True, check=False, env=form)
    if done.returncode:
        own = next(place for place, word in enumerate(words) if word.endswith(PROGRAM))
        step = " ".join(words[own + 1 : own + 3])
        error = native_failures.of_process(
            PROGRAM,
            done.returncode,
            done.stderr,
            remedy="try another candidate or a smaller --scale, or run 'make setup' again",
        )
        raise SpoolscopeError(f"{step} failed: {error.message}", remedy=error.remedy)
    return done.stdout
