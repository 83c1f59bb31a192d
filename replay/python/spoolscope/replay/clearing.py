"""Removing what a replay, or any other command, was working in when it was killed."""

import re
import shutil
from pathlib import Path

from spoolscope.replay import images
from spoolscope.traces.errors import SpoolscopeError


def clear(place: Path) -> None:
    """Unmount what is mounted in a directory, free its loop devices, remove it.

    Raises:
        SpoolscopeError: something in it is in use, or cannot be removed.
    """
    for mount in reversed(_mounts_below(place)):
        images.unmount(mount)
    if still := _mounts_below(place):
        raise SpoolscopeError(
            f"{still[0]} cannot be unmounted", remedy=f"end what uses it: fuser -vm {still[0]}"
        )
    for device in _loops_below(place):
        images.run("losetup", "--detach", device)
    try:
        shutil.rmtree(place)
    except OSError as error:
        raise SpoolscopeError(
            f"cannot remove {place}: {error.strerror}", remedy="remove it by hand"
        ) from error


def _mounts_below(place: Path) -> list[Path]:
    """Return mount points in a directory, in the order in which they were mounted."""
    lines = Path("/proc/self/mountinfo").read_text(errors="surrogateescape").splitlines()
    names = (line.split(" ")[4] for line in lines)
    mounts = (Path(re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal[1], 8)), n)) for n in names)
    return [mount for mount in mounts if mount.is_relative_to(place)]


def _loops_below(place: Path) -> list[str]:
    """Return loop devices whose file lies in a directory."""
    files = Path("/sys/block").glob("loop*/loop/backing_file")
    found = []
    for file in files:
        backing = Path(file.read_text(errors="surrogateescape").rstrip("\n"))
        if backing.is_relative_to(place):
            found.append(f"/dev/{file.parts[3]}")
    return found
