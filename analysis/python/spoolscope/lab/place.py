"""Filesystems to experiment on: fresh, on loop devices, gone afterwards."""

import os
import re
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from spoolscope.traces.errors import SpoolscopeError

UMOUNT_TRIES = 25

# Inode tables and journals are written by mkfs: a thread that does it later would disturb.
_EXT = ("-q", "-F", "-E", "nodiscard,lazy_itable_init=0,lazy_journal_init=0")
MKFS: dict[str, tuple[str, ...]] = {
    "ext3": ("mkfs.ext3", *_EXT),
    "ext4": ("mkfs.ext4", *_EXT),
    "xfs": ("mkfs.xfs", "-q", "-f", "-K"),
    "btrfs": ("mkfs.btrfs", "-q", "-f", "-K"),
}


def format_image(image: Path, fstype: str, size_bytes: int, options: Sequence[str] = ()) -> None:
    """Make a sparse image with a fresh filesystem.

    Raises:
        SpoolscopeError: mkfs is missing or failed.
    """
    with image.open("wb") as file:
        file.truncate(size_bytes)
    _run(*MKFS[fstype], *options, str(image))


@contextmanager
def mounted(backing: Path, mount: Path, fstype: str, options: str = "noatime") -> Iterator[Path]:
    """Mount a file through a loop device; the device goes with the mount.

    Raises:
        SpoolscopeError: mount failed.
    """
    mount.mkdir(exist_ok=True)
    try:
        _run("mount", "-t", fstype, "-o", f"loop,{options}", str(backing), str(mount))
        yield mount
    finally:
        unmount(mount)


def serve_at_once(mount: Path) -> None:
    """Let the loop device below a mount pass requests on as they come, not one after the other.

    Raises:
        SpoolscopeError: its backing file cannot be read and written directly.
    """
    device = _run("findmnt", "--noheadings", "--output", "SOURCE", "--target", str(mount)).strip()
    _run("losetup", "--direct-io=on", device)


def mount_memory(place: Path) -> None:
    """Mount a filesystem in memory.

    Raises:
        SpoolscopeError: mount failed.
    """
    _run("mount", "-t", "tmpfs", "-o", "mode=700", "spoolscope-lab", str(place))


def unmount(mount: Path) -> None:
    """Unmount; a straggler may still be closing a file."""
    for _ in range(UMOUNT_TRIES):
        if not os.path.ismount(mount):
            return
        if not subprocess.run(["umount", mount], capture_output=True, check=False).returncode:
            return
        time.sleep(0.2)
    subprocess.run(["umount", "--lazy", mount], capture_output=True, check=False)


def set_features(image: Path, features: str) -> None:
    """Change the features of an ext3 or ext4 image, e.g. "^dir_index".

    Raises:
        SpoolscopeError: tune2fs failed.
    """
    _run("tune2fs", "-O", features, str(image))


def journal_places(image: Path) -> list[tuple[int, int]]:
    """Return where the journal of an ext3 or ext4 image lies: bytes, ends exclusive.

    Raises:
        SpoolscopeError: debugfs failed.
    """
    said = _run("debugfs", "-R", "stat <8>", str(image))
    (size,) = map(int, re.findall(r"^Block size:\s+(\d+)", _run("dumpe2fs", "-h", image), re.M))
    # "EXTENTS: (0-4095):98304-102399" or, of ext3, "BLOCKS: (0-11):5-16, (IND):17, ...".
    blocks = re.findall(r"\([\dA-Z-]+\):(\d+)(?:-(\d+))?", said)
    return [(int(first) * size, (int(last or first) + 1) * size) for first, last in blocks]


def _run(*command: str | Path) -> str:
    path = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, env={**os.environ, "PATH": path}, check=False
        )
    except FileNotFoundError as error:
        raise SpoolscopeError(
            f"program {command[0]} is missing", remedy="run 'make setup'"
        ) from error
    if done.returncode:
        lines = (done.stderr or done.stdout).strip().splitlines() or ["no message"]
        words = " ".join(map(str, command))
        raise SpoolscopeError(f"{words} failed: {lines[-1].strip()}", remedy="run as root")
    return done.stdout
