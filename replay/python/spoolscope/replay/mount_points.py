"""Mount points with short paths; each belongs to one command, and only it sees its mounts."""

import ctypes
import fcntl
import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path

from spoolscope.replay.interrupts import undisturbed
from spoolscope.traces.mounts import Mount, mounts
from spoolscope.traces.unfinished import command_line

RUN = Path("/run/spoolscope")
"""Its numbered directories are mount points; each is locked by the command that uses it."""

# Numbers of <sched.h> and <sys/mount.h>.
_CLONE_NEWNS = 0x0002_0000
_MS_REC, _MS_SLAVE = 1 << 14, 1 << 19
_MNT_DETACH = 2


def enter_private_mounts(needed: Iterable[Path]) -> None:
    """Give this command a mount namespace of its own, which is gone with its last process.

    A program that uses this package keeps its namespace: its threads could not all go back.

    Args:
        needed: Files and directories that are used, besides programs.
    """
    if command_line() is None:
        return
    libc = ctypes.CDLL(None)
    # A process that may not do this may not mount either: the mount reports it.
    if libc.unshare(_CLONE_NEWNS) != 0:
        return
    # A chroot's root need not be a mount point: other processes then see the mounts.
    libc.mount(b"none", b"/", None, ctypes.c_ulong(_MS_REC | _MS_SLAVE), None)
    used = [path.resolve() for path in (*needed, Path.cwd(), Path(sys.prefix), Path(__file__))]
    for mount in reversed(mounts()):
        if _would_be_held(mount) and not any(path.is_relative_to(mount.place) for path in used):
            libc.umount2(os.fsencode(mount.place), _MNT_DETACH)


def _would_be_held(mount: Mount) -> bool:
    """Return whether a mount seems temporary, and our copy of it would stay if it is unmounted.

    Our copy would keep its disk in use. Where mounts are shared, as systemd has them, an unmount
    reaches our namespace, too.
    """
    for_a_while = mount.fstype.startswith("fuse") or mount.source.startswith("/dev/loop")
    return for_a_while and not mount.propagates


@contextmanager
def mount_point() -> Iterator[Path]:
    """Yield an empty directory; what is mounted there has to be unmounted before the end.

    Raises:
        OSError: it cannot be made.
    """
    RUN.parent.mkdir(parents=True, exist_ok=True)
    place, descriptor = next(found for number in count(1) if (found := taken(RUN / str(number))))
    try:
        yield place
    finally:
        with undisturbed():
            vacated(place, descriptor)


def remove_unused() -> None:
    """Remove the mount points of killed commands, where nothing is mounted any more."""
    for place in RUN.glob("[0-9]*"):
        with suppress(PermissionError):  # root made them
            if (held := taken(place)) is not None:
                vacated(*held)


def taken(place: Path) -> tuple[Path, int] | None:
    """Make and lock a directory, or take one that a killed command has left; None if in use.

    The lock is needed: rmdir succeeds if a directory is a mount point in another namespace only,
    and what is mounted there goes with it.
    """
    descriptor = -1
    try:
        RUN.mkdir(mode=0o755, exist_ok=True)
        place.mkdir(mode=0o700, exist_ok=True)
        descriptor = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if not place.is_mount() and os.path.samestat(os.fstat(descriptor), place.stat()):
            return place, descriptor
    except (FileNotFoundError, BlockingIOError, FileExistsError):
        pass  # removed by another command meanwhile, or locked by it, or no directory
    if descriptor >= 0:
        os.close(descriptor)
    return None


def vacated(place: Path, descriptor: int) -> None:
    """Remove a directory that was taken, unless something is mounted on it, and unlock it."""
    with suppress(OSError):  # something is mounted on it
        place.rmdir()
    os.close(descriptor)
    with suppress(OSError):  # others use it
        RUN.rmdir()
