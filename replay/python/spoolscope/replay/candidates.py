"""Candidates as the command line names them, and checks that they can be used."""

import os
import re
from dataclasses import replace
from typing import Any

from spoolscope.replay.candidate import DIRECTORY, Candidate, in_directory
from spoolscope.replay.directories import check_directory
from spoolscope.replay.options import WrongError
from spoolscope.replay.presets import Candidates, made, presets
from spoolscope.replay.where import why_not_here
from spoolscope.traces.devices import device_models
from spoolscope.traces.errors import SpoolscopeError, usage_error

__all__ = ["Candidate", "check", "parse"]

INLINE = re.compile(r"(?P<base>[^\[\]]+)\[(?P<mkfs>[^;]*)(;(?P<mount>[^;]*))?\]")
SERIES = re.compile(r"\d+\.\d+")
"""Series of kernels, such as "6.1"."""
SUCH_AS = "such as 'ext3[-J size=256 -O dir_index; data=journal]'"


def parse(text: str, candidates: Candidates | None = None) -> Candidate:
    """Return the candidate named on the command line.

    Args:
        text: A name, a name with options, ``NAME[words of mkfs; mount options]``, or
            ``dir:PATH``; ``ext4@6.1`` is ext4 on that kernel, ``ext4@hdd10k`` on that device model.
        candidates: Candidates by name; the shipped ones if not given.

    Raises:
        SpoolscopeError: it is none of them, or its options are refused.
    """
    candidates = presets() if candidates is None else candidates
    name, at, series = text.rpartition("@")
    if at and SERIES.fullmatch(series):
        return replace(parse(name, candidates), name=text, kernel=series)
    if at and series in device_models() and not name.startswith(f"{DIRECTORY}:"):
        return replace(parse(name, candidates), model=series)
    if text in candidates:
        return candidates[text]
    if text.startswith(f"{DIRECTORY}:") and len(text) > len(DIRECTORY) + 1:
        return in_directory(text)
    if (inline := INLINE.fullmatch(text.strip())) and inline["base"].strip() in candidates:
        base = candidates[inline["base"].strip()]
        return _inline(text.strip(), base, inline["mkfs"], inline["mount"] or "", candidates)
    if "[" in text and inline is None:
        raise usage_error(
            f"candidate {text!r} is not NAME[words of mkfs; mount options]", remedy=SUCH_AS
        )
    raise usage_error(
        f"unknown candidate {text!r}",
        remedy="use a name that 'spoolscope candidates' lists, 'ext4[OPTIONS]', or dir:PATH",
    )


def _inline(text: str, base: Candidate, mkfs: str, mount: str, others: Candidates) -> Candidate:
    block = {"mkfs": mkfs, "mount": mount, "reason": "Given on the command line.", "source": ""}
    try:
        return made(text, block, base, others, ours=False)
    except WrongError as error:
        raise usage_error(f"candidate {text!r}: {error}", remedy=SUCH_AS) from None


def check(candidate: Candidate, meta: dict[str, Any], *, ages: bool = False) -> None:
    """Make sure, before anything is changed, that a candidate can be used.

    Args:
        candidate: The candidate to replay on.
        meta: meta.json of the trace; its spools are never written to.
        ages: It is to be aged, that is, filled nearly up: refused for a directory.

    Raises:
        SpoolscopeError: not root, mkfs or the filesystem missing, a directory not empty, to be
            aged or a production spool.
    """
    if candidate.directory is not None:
        if ages:
            raise usage_error(
                f"{candidate.name} is not aged: its filesystem would be filled nearly up",
                remedy="use --age with images, such as --on ext4",
            )
        check_directory(candidate.directory, meta)
        return
    if os.geteuid() != 0:
        raise SpoolscopeError(
            f"candidate {candidate.name} needs root to mount a fresh image",
            remedy="run with sudo, or use --on dir:PATH with an empty directory",
        )
    if why := why_not_here(candidate):
        raise SpoolscopeError(
            f"candidate {candidate.name} does not run here: {why.reason}", remedy=why.remedy
        )
