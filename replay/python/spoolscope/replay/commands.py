"""Commands that make and mount a candidate, in their order; they run without a shell."""

import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import PurePath
from typing import Any

from spoolscope.replay import images
from spoolscope.replay.candidate import Candidate
from spoolscope.replay.layers import NFS, Command
from spoolscope.traces.errors import SpoolscopeError
from spoolscope.traces.filesystems import DEVICE, FILESYSTEMS, Filesystem
from spoolscope.traces.scratch import scratch

BLOCK_BYTES = 4096
"""Size of the blocks in which filesystems.toml counts a journal."""
SAID_LINES = 3
OVERLAY = "overlay"
HOST = "127.0.0.1"
# Export options besides the candidate's; fsid=0 makes it the root of what NFS 4 sees.
EXPORTED = "rw,no_root_squash,no_subtree_check,fsid=0"
# Directories of an overlay on the filesystem below, by mount option.
PARTS = {"lowerdir": "lower", "upperdir": "upper", "workdir": "work"}

# "mke2fs 1.47.0 (5-Feb-2023)", "mkfs.jfs version 1.1.15, 04-Mar-2011", a guess of mkfs.reiserfs.
BANNER = re.compile(r"(mke2fs|mkfs\.\w+|exfatprogs) (\(?[\w-]+ )?(version)?[ :]*\d|Guessing about")


def formatting(
    candidate: Candidate, device: str, journal: str = "", label: Sequence[str] = ()
) -> list[Command]:
    """Return the commands that make a candidate's filesystem.

    Args:
        candidate: The candidate to make.
        device: Block device or image.
        journal: Block device of its separate journal or log, if it has one.
        label: Further words for mkfs.
    """
    if not candidate.mkfs:
        return []
    kind = formatted(candidate)
    made: list[Command] = []
    words = [*candidate.mkfs]
    if journal and kind.journal is not None:
        fields = _fields_of(candidate, journal)
        if kind.journal.format:
            made.append((words[0], *label, *_filled(kind.journal.format, fields)))
        words += _filled(kind.journal.mkfs, fields)
    made.append((*words, *label, *_on(device, kind.ends)))
    return [*made, kind.release] if kind.release else made


def mounting(
    candidate: Candidate,
    device: str,
    place: PurePath,
    journal: str = "",
    *,
    loop: bool = False,
    exported: PurePath | None = None,
) -> list[Command]:
    """Return the commands that mount a candidate.

    Args:
        candidate: The candidate to mount.
        device: Block device or image, as in ``formatting``.
        place: The mount point.
        journal: Block device of its journal, as in ``formatting``.
        loop: The device is an image: it gets a loop device that goes with the mount.
        exported: Mount point of the filesystem below, which a server exports.
    """
    kind = FILESYSTEMS[candidate.fstype]
    if candidate.fstype == OVERLAY and candidate.below is not None:
        parts = {option: str(place / name) for option, name in PARTS.items()}
        options = ",".join(
            (candidate.mount_options, *(f"{option}={part}" for option, part in parts.items()))
        )
        return [
            *mounting(candidate.below, device, place, journal, loop=loop),
            ("mkdir", "-p", *parts.values()),
            ("mount", "-t", OVERLAY, "-o", options, kind.mounts, str(place)),
        ]
    if candidate.fstype in NFS and candidate.below is not None:
        below = exported or PurePath("EXPORTED")
        return [
            *mounting(candidate.below, device, below, journal, loop=loop),
            ("exportfs", "-i", "-o", f"{candidate.export},{EXPORTED}", f"{HOST}:{below}"),
            _mount(candidate, kind.mounts.replace("{exported}", str(below)), place),
        ]
    options = candidate.mount_options
    if journal and kind.journal is not None and kind.journal.mount:
        options = f"{_filled([kind.journal.mount], _fields_of(candidate, journal))[0]},{options}"
    if loop:
        options = f"loop,{options}"
    done = _mount(candidate, kind.mounts.replace(DEVICE, device), place, options)
    return [_on(device, kind.attach), done] if kind.attach else [done]


def _on(device: str, words: Sequence[str]) -> Command:
    return tuple(word.replace(DEVICE, device) for word in words)


def _mount(candidate: Candidate, source: str, place: PurePath, options: str = "") -> Command:
    options = options or candidate.mount_options
    return ("mount", "-t", candidate.fstype, "-o", options, source, str(place))


def checking(candidate: Candidate, device: str, journal: str = "") -> list[str]:
    """Return the program that checks it read-only, with its words; empty if there is none."""
    kind = formatted(candidate)
    words = list(kind.fsck)
    if words and journal and kind.journal is not None:
        words += _filled(kind.journal.fsck, _fields_of(candidate, journal))
    return [*_on(device, words), *([] if DEVICE in words else [device])] if words else []


def formatted(candidate: Candidate) -> Filesystem:
    """Return the type that mkfs makes; for an overlay or export, that of the filesystem below."""
    return FILESYSTEMS[(candidate.below or candidate).fstype]


def _fields_of(candidate: Candidate, journal: str) -> dict[str, object]:
    size = candidate.journal
    return {"journal": journal, "bytes": size, "blocks": size // BLOCK_BYTES}


def _filled(words: Sequence[str], fields: dict[str, object]) -> list[str]:
    return [word.format_map(fields) for word in words]


def carried_out(commands: Sequence[Command]) -> list[dict[str, Any]]:
    """Run commands one after the other and return each with its full output.

    Raises:
        SpoolscopeError: a program is missing or refused, with its own words.
    """
    return [{"command": list(words), "said": _run(words)} for words in commands]


def versions(candidate: Candidate) -> dict[str, str]:
    """Return the versions of the programs that make and mount a candidate, as they print them."""
    programs = dict.fromkeys([*candidate.mkfs[:1], "mount"])
    path = images.program_path()
    return {one: _version_of(shutil.which(one, path=path) or one) for one in programs}


@cache
def _version_of(program: str) -> str:
    try:
        done = _ended((program, "-V"))
    except OSError:
        return ""
    lines = (line.strip() for line in (done.stdout + done.stderr).splitlines())
    return next((line for line in lines if re.search(r"\d+\.\d", line)), "")


def own_words(said: str) -> str:
    """Return why a program refused: its first lines, without its version and its usage."""
    lines: list[str] = []
    for line in (line.strip() for line in said.splitlines()):
        if re.match(r"usage\b", line, re.I):
            break
        if line and not BANNER.match(line):
            lines.append(line)
    return "; ".join(lines[:SAID_LINES]) or "no message"


def _ended(words: Command) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PATH": images.program_path(), "LC_ALL": "C"}
    # In an empty directory a word without a directory cannot name a file by mistake.
    with tempfile.TemporaryDirectory(dir=scratch()) as empty:
        return subprocess.run(
            words,
            capture_output=True,
            text=True,
            errors="replace",
            env=env,
            check=False,
            stdin=subprocess.DEVNULL,
            cwd=empty,
        )


def _run(words: Command) -> str:
    try:
        done = _ended(words)
    except FileNotFoundError as error:
        raise SpoolscopeError(
            f"program {words[0]} is missing", remedy="install the package that has it"
        ) from error
    said = _plain(done.stderr + done.stdout)
    if done.returncode:
        raise SpoolscopeError(
            f"{words[0]} refuses: {own_words(said)} ({shlex.join(words)})",
            remedy="change the candidate's options; 'spoolscope candidates NAME' shows them",
        )
    return said


def _plain(said: str) -> str:
    """Return a text without the characters that its backspaces erase."""
    while "\b" in said:
        said = re.sub(r"(?:[^\b]|^)\x08", "", said)
    return said
