"""Pools of zfs on loop devices: the kernel has them until they are exported."""

from collections.abc import Sequence
from pathlib import Path

from spoolscope.replay import images
from spoolscope.replay.candidate import Candidate
from spoolscope.replay.commands import formatted
from spoolscope.traces.filesystems import FILESYSTEMS, Filesystem


def has_pool(candidate: Candidate) -> bool:
    """Return whether a candidate is made on a pool, which outlives its mount."""
    return bool(formatted(candidate).release)


def release(candidate: Candidate) -> None:
    """Export the unmounted pool of a candidate; nothing is done where there is none.

    Raises:
        SpoolscopeError: something still uses it.
    """
    if has_pool(candidate) and _is_known(formatted(candidate)):
        images.run(*formatted(candidate).release)


def release_left(loops: Sequence[str]) -> None:
    """Export pools of a killed command, which would keep its loop devices.

    Args:
        loops: Loop devices whose images are to be removed; other pools stay.

    Raises:
        SpoolscopeError: something still uses one.
    """
    for kind in FILESYSTEMS.values():
        if loops and kind.release and _is_known(kind):
            listed = images.run("zpool", "status", "-P", kind.mounts).split()
            if not set(listed).isdisjoint(loops):
                images.run(*kind.release)


def _is_known(kind: Filesystem) -> bool:
    return Path("/proc/spl/kstat/zfs", kind.mounts).is_dir()
