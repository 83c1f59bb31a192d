"""The file of a matrix: candidates, rounds and what all runs share, for the verb replay."""

import tomllib
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from spoolscope.traces.errors import USAGE, SpoolscopeError
from spoolscope.traces.files import regular

KEYS = ("rounds", "pace", "cache", "age", "seed", "reference")
"""Keys that are also options, which override the file."""

CANDIDATES = "candidates"


def with_matrix(options: dict[str, Any]) -> dict[str, Any]:
    """Return the options of replay, with missing ones taken from the matrix file.

    Candidates of the file come before those of ``--on``; unless another is named, the first is
    the reference.

    Raises:
        SpoolscopeError: the file cannot be read, or has an invalid value.
    """
    file = options["matrix"]
    if file is None:
        return options
    settings = _read(file)
    names = [*settings.pop(CANDIDATES, []), *options["candidates"]]
    found = {**options, "candidates": tuple(names)}
    context = click.get_current_context()
    params = {param.name: param for param in context.command.params}
    for key, value in settings.items():
        if context.get_parameter_source(key) == ParameterSource.DEFAULT:
            try:
                found[key] = params[key].type_cast_value(context, str(value))
            except click.BadParameter as error:
                raise _wrong(file, f"{key}: {error.message}") from None
    if found["reference"] is None and names:
        found["reference"] = names[0]
    return found


def _read(file: Path) -> dict[str, Any]:
    try:
        settings = tomllib.loads(regular(file).read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise _wrong(file, str(error)) from None
    if unknown := [key for key in settings if key not in (CANDIDATES, *KEYS)]:
        raise _wrong(file, f"unknown: {', '.join(unknown)}")
    names = settings.get(CANDIDATES, [])
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise _wrong(file, f"{CANDIDATES} is no list of texts")
    if wrong := [key for key in KEYS if isinstance(settings.get(key), (bool, list, dict))]:
        raise _wrong(file, f"{wrong[0]} is neither a number nor a text")
    return settings


def _wrong(file: Path, what: str) -> SpoolscopeError:
    return SpoolscopeError(
        f"{file} is no matrix: {what}",
        remedy=f"it may have {CANDIDATES} = ['ext4', 'xfs'], {', '.join(KEYS)}",
        exit_code=USAGE,
    )
