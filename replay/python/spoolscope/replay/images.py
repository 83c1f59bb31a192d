"""Loop images, which programs of the system format, mount and unmount."""

import errno
import os
import stat
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from spoolscope.traces.errors import SpoolscopeError
from spoolscope.traces.files import replacing

UMOUNT_TRIES = 25
_PIECE = 1 << 20


def program_path() -> str:
    """Return the search path of programs, with the administrator's directories."""
    return os.environ.get("PATH", "") + ":/usr/sbin:/sbin"


def run(*command: str | Path) -> str:
    """Run a program and return its output.

    Raises:
        SpoolscopeError: it is missing or failed.
    """
    env = {**os.environ, "PATH": program_path()}
    try:
        # Labels and names of files on a disk are bytes.
        done = subprocess.run(
            command, capture_output=True, text=True, errors="replace", env=env, check=False
        )
    except FileNotFoundError as error:
        raise SpoolscopeError(
            f"program {command[0]} is missing", remedy="install the package that has it"
        ) from error
    if done.returncode:
        lines = (done.stderr or done.stdout).strip().splitlines() or ["no message"]
        raise SpoolscopeError(
            f"{' '.join(map(str, command))} failed: {lines[-1].strip()}",
            remedy="run as root; 'spoolscope doctor' says what this machine can do",
        )
    return done.stdout


def create(image: Path, size_bytes: int) -> None:
    """Make a sparse file without contents."""
    with replacing(image) as file:
        file.truncate(size_bytes)


def make(image: Path, size_bytes: int, mkfs: Sequence[str]) -> None:
    """Make a sparse image with a fresh filesystem; its path is appended to the words of mkfs.

    Raises:
        SpoolscopeError: mkfs is missing or failed.
    """
    create(image, size_bytes)
    run(*mkfs, image)


def mount(source: Path, place: Path, fstype: str, options: str) -> None:
    """Mount a device, or, with the option "loop", an image; its loop device goes with the mount.

    Raises:
        SpoolscopeError: mount failed.
    """
    run("mount", "-t", fstype, "-o", options, source, place)


def loop_device(place: Path) -> Path:
    """Return the loop device below a mount point.

    Raises:
        SpoolscopeError: findmnt failed.
    """
    said = run("findmnt", "--noheadings", "--output", "SOURCE", "--target", place)
    # An overlay, which has no device, is mounted over a filesystem that has one.
    return Path([source for source in said.split() if source.startswith("/dev/")][-1])


def serve_at_once(place: Path) -> None:
    """Let the loop device below a mount pass requests on concurrently, with direct I/O.

    Raises:
        SpoolscopeError: its backing file cannot be read and written directly.
    """
    run("losetup", "--direct-io=on", loop_device(place))


def unmount(place: Path) -> None:
    """Unmount all that is mounted there; retry, as a process may still be closing a file."""
    for _ in range(UMOUNT_TRIES):
        if not os.path.ismount(place):
            return
        if subprocess.run(["umount", place], capture_output=True, check=False).returncode:
            time.sleep(0.2)
    subprocess.run(["umount", "--lazy", place], capture_output=True, check=False)


def drop_cached(image: Path) -> None:
    """Write an unmounted image back and let the kernel forget its pages."""
    with image.open("rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def copy(image: Path, to: Path) -> None:
    """Copy an unmounted image; holes stay holes, and blocks are shared where that is possible.

    Raises:
        SpoolscopeError: no space left.
    """
    run("cp", "--sparse=always", "--reflink=auto", "--", image, to)


def read_all(place: Path) -> None:
    """Read every name, attribute and byte below a directory, so that caches are warm.

    Holes are skipped: reading those of a file of a terabyte takes minutes, and fills as much
    memory.

    Raises:
        SpoolscopeError: something could not be read.
    """
    buffer = bytearray(_PIECE)
    try:
        for at, name in names_below(place):
            if stat.S_ISREG(os.stat(name, dir_fd=at, follow_symlinks=False).st_mode):
                _read_data(at, name, buffer)
    except OSError as error:
        raise SpoolscopeError(
            f"cannot read all of {place}: {error}", remedy="use --cache cold, or run as root"
        ) from error


def names_below(place: Path) -> Iterator[tuple[int, bytes]]:
    """Yield each name below a directory, after a descriptor of the directory that it lies in.

    lost+found, where ageing has files, is no part of the spool; nor are other filesystems.

    Raises:
        OSError: a directory cannot be read.
    """
    device = os.lstat(place).st_dev
    for directory, names, files, at in os.fwalk(place, onerror=_fail):
        if os.fstat(at).st_dev != device:
            names.clear()
            continue
        if directory == os.fspath(place) and "lost+found" in names:
            names.remove("lost+found")
        for name in (*names, *files):
            yield at, os.fsencode(name)


def _fail(error: OSError) -> None:
    raise error


def _read_data(directory: int, name: bytes, buffer: bytearray) -> None:
    with os.fdopen(os.open(name, os.O_RDONLY, dir_fd=directory), "rb", buffering=0) as file:
        at = 0
        while True:
            try:
                at = os.lseek(file.fileno(), at, os.SEEK_DATA)
            except OSError as error:
                if error.errno == errno.ENXIO:
                    return
                if error.errno != errno.EINVAL:  # EINVAL: without SEEK_DATA
                    raise
            got = file.readinto(buffer)
            if not got:
                return
            at += got


def filesystem_type(place: Path) -> str:
    """Return the type of the filesystem below a directory; empty if it is unknown."""
    words = ["findmnt", "--noheadings", "--output", "FSTYPE", "--target", str(place)]
    found = subprocess.run(words, capture_output=True, text=True, check=False).stdout.split()
    return found[-1] if found else ""  # the last mount at a place is on top


def size_of(device: Path) -> int:
    """Return the bytes of a block device."""
    with device.open("rb") as file:
        return file.seek(0, os.SEEK_END)
