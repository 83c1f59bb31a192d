"""Limits of a control group, cgroup v1 or v2, for the time of an experiment."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from spoolscope.traces.errors import SpoolscopeError

CGROUPS = Path("/sys/fs/cgroup")

# Kind of limit -> controller of v1 with its file, file of v2; "{dev}" is major:minor.
_FILES = {
    "write_iops": ("blkio", "blkio.throttle.write_iops_device", "{dev} {n}"),
    "memory_bytes": ("memory", "memory.limit_in_bytes", "{n}"),
}
_FILES_V2 = {
    "write_iops": ("io", "io.max", "{dev} wiops={n}"),
    "memory_bytes": ("memory", "memory.max", "{n}"),
}


@contextmanager
def limited(limit: tuple[str, int] | None, mount: Path) -> Iterator[Path | None]:
    """Make a control group with a limit, for processes to enter; None without one.

    Args:
        limit: write_iops (writes a second to the disk of ``mount``) or memory_bytes; its number.
        mount: A mount point.

    Raises:
        SpoolscopeError: this machine has no such control groups.
    """
    if limit is None:
        yield None
        return
    kind, number = limit
    # st_dev of a btrfs file is no real device: ask for that of the mount.
    found = subprocess.run(
        ["findmnt", "--noheadings", "--output", "SOURCE", "--target", mount],
        capture_output=True,
        text=True,
        check=True,
    )
    dev = Path(found.stdout.strip()).stat().st_rdev
    group, name, text = _group(kind)
    group.mkdir()
    try:
        text = text.format(dev=f"{os.major(dev)}:{os.minor(dev)}", n=number)
        (group / name).write_text(text)
        yield group
    finally:
        group.rmdir()


def _group(kind: str) -> tuple[Path, str, str]:
    leaf = f"spoolscope-lab-{os.getpid()}"
    controller, name, text = _FILES[kind]
    if (CGROUPS / controller / "cgroup.procs").exists():
        return CGROUPS / controller / leaf, name, text
    controller, name, text = _FILES_V2[kind]
    known = CGROUPS / "cgroup.subtree_control"
    if known.exists() and controller in known.read_text().split():
        return CGROUPS / leaf, name, text
    raise SpoolscopeError(
        f"no control group limits {kind} on this machine", remedy="leave this fault out"
    )
