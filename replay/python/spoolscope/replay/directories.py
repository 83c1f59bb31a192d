"""Directories as targets: checked, kept from other replays, emptied in the end."""

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from spoolscope.replay.interrupts import undisturbed
from spoolscope.traces.errors import SpoolscopeError, usage_error
from spoolscope.traces.mounts import mounts
from spoolscope.traces.text import decoded


def check_directory(directory: Path, meta: dict[str, Any]) -> None:
    """Make sure that a directory can be a target.

    Args:
        directory: The directory.
        meta: meta.json of the trace; its spools are never written to.

    Raises:
        SpoolscopeError: it is missing, closed, not empty, or lies on a recorded spool.
    """
    if not directory.is_dir():
        raise usage_error(f"target {directory} is not a directory", remedy=f"mkdir {directory}")
    real = directory.resolve()
    for spool in meta.get("spools", []):
        mount = Path(spool["mount"])
        if real == mount or (mount != Path("/") and (mount in real.parents or _is(spool, real))):
            raise usage_error(
                f"target {directory} lies on {mount}, the spool this trace was recorded on",
                remedy="give an empty directory elsewhere with --on dir:PATH",
            )
    _check_empty(directory)
    if not os.access(real, os.W_OK | os.X_OK):
        raise usage_error(
            f"target {directory} may not be written to",
            remedy="give a directory of your own with --on dir:PATH, or run with sudo",
        )


def _check_empty(directory: Path) -> None:
    if any(entry.name != "lost+found" for entry in directory.iterdir()):
        raise usage_error(
            f"target {directory} is not empty", remedy="give an empty directory with --on dir:PATH"
        )


def _lock(descriptor: int, directory: Path) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise SpoolscopeError(
            f"another replay uses target {directory}",
            remedy="give an empty directory with --on dir:PATH",
        ) from None


@contextmanager
def alone_in(directory: Path) -> Iterator[None]:
    """Lock an empty directory against other replays, and empty it in the end."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        _lock(descriptor, directory)
        _check_empty(directory)
        before = {entry.name for entry in directory.iterdir()}
        try:
            yield
        finally:
            with undisturbed():
                _empty(directory, before)
    finally:
        os.close(descriptor)


def _is(spool: dict[str, Any], directory: Path) -> bool:
    """Return whether a directory lies on the spool that was recorded, whatever its name is.

    The name may be a pseudonym, which keeps its length.
    """
    length = len(decoded(spool["mount"]))
    above = (directory, *directory.parents)
    place = next((place for place in above if len(os.fsencode(place)) == length), None)
    devices = {mount.place: mount.device for mount in mounts()}
    holder = place
    while holder is not None and holder not in devices:
        if holder == holder.parent:
            return False  # in a chroot, whose root is no mount point
        holder = holder.parent
    if holder is None or (holder != place and not spool.get("part")):
        return False
    major, minor = map(int, devices[holder].split(":"))
    size = os.statvfs(holder)
    same = major << 20 | minor, size.f_blocks * size.f_frsize
    return same == (spool.get("dev"), spool.get("size_bytes"))


def remove(top: Path) -> None:
    """Remove a tree, also if a user has no permissions on some of its directories."""
    shutil.rmtree(top, ignore_errors=True)
    if top.exists():
        top.chmod(0o700)
        for path, below, _ in os.walk(top):
            for directory in (Path(path, name) for name in below):
                if not directory.is_symlink():
                    directory.chmod(0o700)
        shutil.rmtree(top, ignore_errors=True)


def _empty(directory: Path, before: set[str]) -> None:
    """Remove what the replay made: the directory was empty before, except for lost+found."""
    for entry in directory.iterdir():
        if entry.name in before:
            continue
        if entry.is_dir() and not entry.is_symlink():
            remove(entry)
        else:
            entry.unlink(missing_ok=True)
