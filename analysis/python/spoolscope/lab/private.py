"""A private place: mounts that nobody else sees, gone with the last process whatever happens."""

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from spoolscope.lab.place import mount_memory
from spoolscope.replay.images import unmount
from spoolscope.traces.errors import SpoolscopeError

_INSIDE = "SPOOLSCOPE_LAB_INSIDE"


def enter_private_mounts() -> None:
    """Begin this command again in a mount namespace of its own, if it is not in one yet.

    What is mounted there vanishes with its last process, and loop devices with their mounts.

    Raises:
        SpoolscopeError: not root, or no program unshare.
    """
    if os.environ.get(_INSIDE) == str(os.getpid()):
        return
    if os.geteuid() != 0:
        raise SpoolscopeError("the lab mounts filesystems", remedy="run with sudo")
    unshare = shutil.which("unshare")
    if unshare is None:
        raise SpoolscopeError("program unshare is missing", remedy="apt-get install util-linux")
    sys.stdout.flush()
    os.environ[_INSIDE] = str(os.getpid())
    again = [sys.executable, "-m", "spoolscope.cli.main", *sys.argv[1:]]
    os.execv(unshare, ["unshare", "--mount", "--propagation", "private", *again])


@contextmanager
def memory_directory() -> Iterator[Path]:
    """Give an empty directory in memory, so that the machine's own disk plays no part."""
    place = Path(tempfile.mkdtemp(prefix="spoolscope-lab-"))
    try:
        mount_memory(place)
        yield place
    finally:
        unmount(place)
        place.rmdir()
