"""Failures of the native programs: their codes, and the errors that they become.

The codes are those of ``traces/src/error_code.rs``; ``test_native_failures.py`` compares them.
"""

import json
import os
from collections.abc import Mapping
from enum import IntEnum
from typing import Any

from spoolscope.traces.errors import ERROR, USAGE, SpoolscopeError

# With it, a native program says why it failed as one line of JSON on stderr.
_FORM = {"SPOOLSCOPE_FAILURES": "json"}


class Code(IntEnum):
    """The kind of a failure; the number is the exit status of the program."""

    FAILED = 1
    USAGE = 2
    TOO_SMALL = 4
    TOO_MANY_USERS = 5
    NOT_EMPTY = 6
    NOT_PERMITTED = 7
    NO_KERNEL = 8


def environment() -> dict[str, str]:
    """Return the environment for a native program whose failure is read from its stderr."""
    return {**os.environ, **_FORM}


def of_process(program: str, status: int, stderr: str, *, remedy: str) -> SpoolscopeError:
    """Return the error for a program that failed, run with ``environment()``.

    Args:
        program: What failed, as the user knows it, e.g. ``replay``.
        status: Its exit status.
        stderr: All that it printed there.
        remedy: What to do where the program names no remedy.
    """
    lines = stderr.strip().splitlines()
    for line in reversed(lines):
        if line.startswith('{"code"'):
            return of_answer(program, json.loads(line), remedy=remedy)
    # It ended before it could say why: by a signal, or by a panic.
    said = lines[-1] if lines else f"it ended with status {status} and no message"
    return SpoolscopeError(f"{program} failed: {said}", remedy=remedy)


def of_answer(program: str, answer: Mapping[str, Any], *, remedy: str) -> SpoolscopeError:
    """Return the error for the answer of a program: its code, message and remedy."""
    name, message = str(answer.get("code")), str(answer["message"])
    code = Code.__members__.get(name.upper())
    if code is None:
        return SpoolscopeError(
            f"{program} failed with the code {name!r}, which is unknown here: {message}",
            remedy="use the program and the package of one version: run 'make setup'",
        )
    return SpoolscopeError(
        message,
        remedy=str(answer.get("remedy") or remedy),
        exit_code=USAGE if code is Code.USAGE else ERROR,
    )
