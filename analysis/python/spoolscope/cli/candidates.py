"""The verb candidates."""

import shlex
from collections.abc import Iterator
from pathlib import Path, PurePath
from textwrap import wrap
from typing import Any

import click

from spoolscope.analysis.wording import fitting
from spoolscope.cli.output import emit_json, json_option
from spoolscope.cli.printing import say
from spoolscope.replay.candidate import SAFE, Candidate
from spoolscope.replay.candidates import parse
from spoolscope.replay.commands import formatting, mounting
from spoolscope.replay.layers import Command
from spoolscope.replay.presets import config_file, known
from spoolscope.replay.where import why_not_here
from spoolscope.traces.errors import SpoolscopeError
from spoolscope.traces.filesystems import FILESYSTEMS

WIDTH = 80
NAME_WIDTH, TYPE_WIDTH = 30, 10
EPILOG = """\b
Examples:
  spoolscope candidates
  spoolscope candidates c2007-xfs
  spoolscope candidates 'ext3[-J size=256 -O dir_index; data=journal]'

\b
Your own, for --candidates or ~/.config/spoolscope/candidates.toml:
  [ours]
  like = "xfs"
  mkfs = "-l size=256m"
  mount = "logbsize=256k"
  smallest = "2 GiB"
  reason = "What we run today."
"""

candidates_option = click.option(
    "--candidates",
    "candidate_files",
    multiple=True,
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="TOML with candidates of your own; may be repeated.",
)


def names_beginning(_ctx: click.Context, _param: click.Parameter, begin: str) -> list[str]:
    """Complete the name of a candidate, for a shell."""
    try:
        return [name for name in known() if name.startswith(begin)]
    except SpoolscopeError:  # completion ignores errors in the operator's files
        return []


@click.command("candidates", epilog=EPILOG)
@click.argument("names", nargs=-1, metavar="[NAME]...", shell_complete=names_beginning)
@candidates_option
@json_option
def command(names: tuple[str, ...], candidate_files: tuple[Path, ...], *, as_json: bool) -> int:
    """List what a replay can run on; with NAME, the commands that make it.

    A candidate is a filesystem with options of mkfs and mount, perhaps a
    separate journal, perhaps on other layers.
    """
    every = known(candidate_files)
    chosen = [parse(name, every) for name in names] or list(every.values())
    if as_json:
        emit_json({"candidates": [_facts(candidate) for candidate in chosen]})
    elif names:
        say(*(line for candidate in chosen for line in _described(candidate)))
    else:
        say(*(line for candidate in chosen for line in _listed(candidate)))
        say(f"Your own: {config_file()}")
        say("Next: spoolscope candidates NAME, or sudo spoolscope replay TRACE --on NAME")
    return 0


def _commands(candidate: Candidate) -> list[Command]:
    if candidate.directory is not None:
        return []
    journal = "JOURNAL" if candidate.journal else ""
    made = formatting(candidate, "DEVICE", journal)
    place = PurePath("DIRECTORY")
    return [*made, *mounting(candidate, "DEVICE", place, journal)] if made else []


def _facts(candidate: Candidate) -> dict[str, Any]:
    why = why_not_here(candidate)
    return {
        "name": candidate.name,
        "filesystem": candidate.fstype,
        "mkfs": list(candidate.mkfs),
        "mount_options": candidate.mount_options,
        "journal_bytes": candidate.journal,
        "on": list(candidate.layers),
        "device_model": candidate.model,
        "smallest_bytes": candidate.smallest,
        "reason": candidate.reason,
        "source": candidate.source,
        "instead": candidate.instead,
        "durability": candidate.durability,
        "kernels": list(candidate.kernels),
        "here": why is None,
        "why_not_here": why.reason if why else "",
        "remedy": why.remedy if why else "",
        "commands": [list(words) for words in _commands(candidate)],
    }


def _listed(candidate: Candidate) -> Iterator[str]:
    """Yield its lines of the list: device, options, their source, and why it is not available."""
    name = fitting(candidate.name, NAME_WIDTH - 1, 4)
    why = why_not_here(candidate)
    elsewhere = f"Debian {', '.join(candidate.kernels)}" if candidate.kernels else "nowhere"
    yield f"{name:<{NAME_WIDTH}}{candidate.fstype:<{TYPE_WIDTH}}{elsewhere if why else 'here'}"
    reason = f"; not here: {why.reason}" if why else ""
    text = f"{_options(candidate)}  [{candidate.source}]{reason}"
    yield from wrap(text, WIDTH, initial_indent="    ", subsequent_indent="    ")


def _options(candidate: Candidate) -> str:
    """Return the options that distinguish it from others of its type."""
    kind = FILESYSTEMS.get((candidate.below or candidate).fstype)
    words = candidate.mkfs
    if kind is not None and words[: len(kind.mkfs)] == kind.mkfs:
        words = words[len(kind.mkfs) :]
    given = [" ".join(words), candidate.mount_options.removesuffix(f",{SAFE}")]
    if candidate.journal:
        given.append(f"journal of {candidate.journal >> 20} MiB")
    if candidate.layers:
        given.append(f"on {', '.join(candidate.layers)}")
    return "; ".join(filter(None, given))


def _described(candidate: Candidate) -> Iterator[str]:
    """Yield all facts on one candidate, with commands on one line so that they can be copied."""
    reason = candidate.reason or f"{candidate.fstype}, without a reason given."
    yield from wrap(f"{candidate.name}: {reason}", WIDTH)
    why = why_not_here(candidate)
    yield f"  runs here    {'yes' if why is None else 'no'}"
    if why is not None:
        yield from _field("", f"{why.reason}; {why.remedy}")
    if candidate.kernels:
        yield from _field("Debian", f"kernels {', '.join(candidate.kernels)}")
    yield from _field("durability", candidate.durability)
    for title, text in (("source", candidate.source), ("differs", candidate.instead)):
        if text:
            yield from _field(title, text)
    if candidate.layers:
        yield from _field("lies on", ", ".join(candidate.layers))
    if candidate.smallest:
        yield from _field("device", f"at least {candidate.smallest >> 20} MiB")
    if candidate.journal:
        yield from _field("journal", f"{candidate.journal >> 20} MiB on a device of its own")
    for words in _commands(candidate):
        yield f"    {shlex.join(words)}"


def _field(title: str, text: str) -> Iterator[str]:
    yield from wrap(text, WIDTH, initial_indent=f"  {title:<13}", subsequent_indent=" " * 15)
