"""A directory in memory for experiments, so that the machine's own disk has no influence."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from spoolscope.lab.place import mount_memory
from spoolscope.replay.images import unmount
from spoolscope.replay.mount_points import enter_private_mounts, mount_point
from spoolscope.traces.errors import SpoolscopeError


def enter(output: Path | None) -> None:
    """Enter a mount namespace, so that all mounts vanish with the command's last process.

    Args:
        output: Path that is written, if any.

    Raises:
        SpoolscopeError: not root.
    """
    if os.geteuid() != 0:
        raise SpoolscopeError("the lab mounts filesystems", remedy="run with sudo")
    enter_private_mounts([output] if output else [])


@contextmanager
def memory_directory() -> Iterator[Path]:
    """Yield an empty directory in memory."""
    with mount_point() as place:
        try:
            mount_memory(place)
            yield place
        finally:
            unmount(place)
