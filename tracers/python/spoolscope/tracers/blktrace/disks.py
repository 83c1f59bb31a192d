"""The disks whose requests a recording covers, by their names below /sys/block."""

import subprocess
from collections.abc import Sequence
from pathlib import Path

from spoolscope.traces.errors import USAGE, SpoolscopeError
from spoolscope.traces.native import find_binary


def disks_of(spools: Sequence[Path]) -> list[str]:
    """Return the whole disks below mount points, with all members of a btrfs.

    The list is empty if a path is not a mount point: the recorder reports that itself.

    Raises:
        SpoolscopeError: none of them lies on a disk.
    """
    words = [str(find_binary("spoolscope-record")), "disks"]
    for spool in spools:
        words += ["--spool", str(spool)]
    asked = subprocess.run(words, capture_output=True, text=True, check=False)
    if asked.returncode:
        return []
    links = [Path(f"/sys/dev/block/{number}") for number in asked.stdout.split()]
    if not links:
        raise SpoolscopeError(
            f"{spools[0]} lies on no disk", remedy="leave out --blktrace", exit_code=USAGE
        )
    return sorted({link.resolve().name for link in links})
