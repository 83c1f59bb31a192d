"""Filesystems that the running kernel can mount, found by trying."""

import ctypes
import errno
import os
import shutil
import subprocess
from functools import cache
from pathlib import Path

SBIN = "/usr/sbin:/sbin"
_FSOPEN = 430  # on every architecture, since Linux 5.2


@cache
def can_mount(fstype: str) -> bool:
    """Return whether the running kernel has a type of filesystem, or can load its module.

    As root it begins a mount, fsopen(2), which loads the module as mount(8) would.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    opened = libc.syscall(_FSOPEN, fstype.encode(), 0)
    if opened >= 0:
        os.close(opened)
        return True
    return ctypes.get_errno() != errno.ENODEV and _known(fstype)


def _known(fstype: str) -> bool:
    """Check without a mount, as the caller may not mount, or the kernel is old."""
    if fstype in Path("/proc/filesystems").read_text().split():
        return True
    modprobe = shutil.which("modprobe", path=SBIN)
    command = [modprobe, "--dry-run", "--quiet", fstype] if modprobe else ["false"]
    return subprocess.run(command, check=False, capture_output=True).returncode == 0
