"""A place in memory for experiments: the machine's own disk plays no part."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from spoolscope.lab.place import mount_memory
from spoolscope.replay.images import unmount
from spoolscope.replay.mount_points import enter_private_mounts, mount_point
from spoolscope.traces.errors import SpoolscopeError


def enter(output: Path | None) -> None:
    """Let what this command mounts be gone with its last process, whatever happens.

    Args:
        output: What is written, if anything.

    Raises:
        SpoolscopeError: not root.
    """
    if os.geteuid() != 0:
        raise SpoolscopeError("the lab mounts filesystems", remedy="run with sudo")
    enter_private_mounts([output] if output else [])


@contextmanager
def memory_directory() -> Iterator[Path]:
    """Give an empty directory in memory."""
    with mount_point() as place:
        try:
            mount_memory(place)
            yield place
        finally:
            unmount(place)
