"""Notes of directories that a command leaves behind if it is killed, for later commands.

A directory in which a command works is locked while the command runs; a note of it lies in the
operator's state directory. If the directory of a note exists and is not locked, a killed command
left it: a capture with real names, a mounted image, a half-written output.

Notes are a convenience: if the state directory is not writable, there are none.
"""

import contextlib
import fcntl
import json
import os
import shlex
import stat
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from spoolscope.traces.files import write_file

Kind = Literal["recording", "series", "replay", "lab", "output", "replaced", "minutes"]

ABOUT, MINUTES = "about.json", "minute-*.json"
"""Names in a directory of sums: what their tables need, and those of minutes without tables."""

_TRIES = 5
"""Another command that ends may remove the empty state directory just before a note is written."""

_locks: dict[Path, int] = {}
"""Descriptors that hold the locks of this process's own directories."""
_notes: dict[Path, Path] = {}


@dataclass(frozen=True)
class Unfinished:
    """A directory in which a command worked that no longer runs.

    Attributes:
        place: The directory, absolute.
        inode: Its inode number; another directory with the same name has a different one.
        kind: recording: a capture; series: the captures of a series; replay: a plan, images,
            mounts; lab: the same of an experiment; output: an unfinished trace; replaced: the old
            output that was to be replaced; minutes: sums of minutes that are no tables yet.
        output: The output that the command was to write.
        command: The command as a shell line; None if it was not begun by the command line.
        devices: Block devices that it formatted.
    """

    place: Path
    inode: int
    kind: Kind
    output: Path
    command: str | None
    devices: tuple[Path, ...] = ()

    @property
    def has_minutes(self) -> bool:
        """True if it has recorded minutes, which the next recorder of roll-ups adds to them."""
        return (self.place / ABOUT).is_file() and any(self.place.glob(MINUTES))


def begin(place: Path, kind: Kind, output: Path, devices: Sequence[Path] = ()) -> None:
    """Lock a directory of this process, and note it until ``end``, or until the process ends."""
    place, output = place.absolute(), output.absolute()
    _locks[place] = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    with contextlib.suppress(OSError):  # a filesystem without locks
        fcntl.flock(_locks[place], fcntl.LOCK_EX | fcntl.LOCK_NB)
    made = Unfinished(place, place.stat().st_ino, kind, output, command_line(), tuple(devices))
    with contextlib.suppress(OSError):
        _notes[place] = _write(made)


def end(place: Path) -> None:
    """Unlock a directory that was renamed or removed, and remove its note."""
    place = place.absolute()
    if (descriptor := _locks.pop(place, None)) is not None:
        os.close(descriptor)
    if (note := _notes.pop(place, None)) is not None:
        _drop(note)


def in_use(place: Path) -> bool:
    """Return whether a directory is locked by a command that still runs, or cannot be locked."""
    try:
        descriptor = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(descriptor)
    return False


def left() -> list[Unfinished]:
    """Return what killed commands of this user left, oldest first; remove outdated notes."""
    found = []
    for note in _all_notes():
        made = _read(note)
        if made is None or not _is_there(made):
            _drop(note)
        elif not in_use(made.place):
            found.append(made)
    return found


def command_line() -> str | None:
    """Return this command as a shell line that works anywhere; None if it was not begun so."""
    if Path(sys.argv[0]).name not in ("spoolscope", "main.py"):
        return None
    root = ["sudo"] if os.geteuid() == 0 else []
    words = shlex.join([*root, "spoolscope", *sys.argv[1:]])
    return f"cd {shlex.quote(str(Path.cwd()))} && {words}"


def _directory() -> Path:
    given = os.environ.get("XDG_STATE_HOME")
    if given and _nobody_else_moves(base := Path(given).resolve()):
        return base / "spoolscope" / "unfinished"
    if os.geteuid() == 0:
        return Path("/var/lib/spoolscope/unfinished")
    return Path.home() / ".local" / "state" / "spoolscope" / "unfinished"


def _write(made: Unfinished) -> Path:
    directory = _directory()
    note = directory / f"{time.time_ns()}-{os.getpid()}.json"
    text = json.dumps(asdict(made), default=str)
    for _ in range(_TRIES):
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        with contextlib.suppress(FileNotFoundError):
            # Another command that reads the notes at this time sees a whole one, or none.
            write_file(note, text, private=True)
            return note
    raise OSError(f"{directory} is removed again and again")


def _all_notes() -> list[Path]:
    """Return the notes, if only this user can have written them: they decide what is removed."""
    directory = _directory()
    try:
        found = directory.lstat()
        if not stat.S_ISDIR(found.st_mode) or not _is_ours_alone(found):
            return []
        return sorted(directory.glob("*.json"))
    except OSError:
        return []


def _nobody_else_moves(place: Path) -> bool:
    """Return whether only this user and root can replace a resolved directory or any above it.

    With ``sudo -E`` the state directory may be of another user, who could make root remove files.
    """
    for directory in (place, *place.parents):
        try:
            found = directory.stat()
        except OSError:
            continue  # not made yet
        if found.st_uid not in (0, os.geteuid()):
            return False
        if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH) and not found.st_mode & stat.S_ISVTX:
            return False
    return True


def _is_ours_alone(found: os.stat_result) -> bool:
    return found.st_uid == os.geteuid() and not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def _read(note: Path) -> Unfinished | None:
    """Return the content of a note; None if it is damaged, or not of this user."""
    try:
        descriptor = os.open(note, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        with os.fdopen(descriptor) as file:
            if not _is_ours_alone(os.fstat(file.fileno())):
                return None
            noted = json.load(file)
        return Unfinished(
            Path(noted["place"]),
            int(noted["inode"]),
            noted["kind"],
            Path(noted["output"]),
            noted["command"],
            tuple(map(Path, noted.get("devices", ()))),
        )
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _is_there(made: Unfinished) -> bool:
    try:
        found = made.place.lstat()
    except OSError:
        return False
    same = (found.st_ino, found.st_uid) == (made.inode, os.geteuid())
    return same and stat.S_ISDIR(found.st_mode) and made.place.name.startswith(".")


def _drop(note: Path) -> None:
    """Remove a note, and its directory with the last one."""
    with contextlib.suppress(OSError):
        note.unlink()
        note.parent.rmdir()
        note.parent.parent.rmdir()
