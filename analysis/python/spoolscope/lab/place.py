"""Filesystems for experiments: fresh, on loop devices, removed afterwards."""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from spoolscope.replay import images
from spoolscope.traces.filesystems import FILESYSTEMS


def format_image(image: Path, fstype: str, size_bytes: int, options: Sequence[str] = ()) -> None:
    """Make a sparse image with a fresh filesystem.

    Raises:
        SpoolscopeError: mkfs is missing or failed.
    """
    kind = FILESYSTEMS[fstype]
    images.make(image, size_bytes, kind.mkfs_words(*kind.keep, *options))


@contextmanager
def mounted(backing: Path, mount: Path, fstype: str, options: str = "noatime") -> Iterator[Path]:
    """Mount a file through a loop device; the device vanishes with the mount.

    Raises:
        SpoolscopeError: mount failed.
    """
    mount.mkdir(exist_ok=True)
    try:
        images.mount(backing, mount, fstype, f"loop,{options}")
        yield mount
    finally:
        images.unmount(mount)


def read_inodes(mount: Path) -> None:
    """Read all inodes and inode bitmaps of an ext3 or ext4 filesystem into the cache.

    Raises:
        SpoolscopeError: dumpe2fs failed.
    """
    said = images.run("dumpe2fs", device := images.loop_device(mount))
    (size,) = map(int, re.findall(r"^Block size:\s+(\d+)", said, re.M))
    with device.open("rb", buffering=0) as disk:
        for first, last in re.findall(r"(?:Inode table|Inode bitmap) at (\d+)(?:-(\d+))?", said):
            disk.seek(int(first) * size)
            disk.read((int(last or first) + 1 - int(first)) * size)


def mount_memory(place: Path) -> None:
    """Mount a filesystem in memory.

    Raises:
        SpoolscopeError: mount failed.
    """
    images.run("mount", "-t", "tmpfs", "-o", "mode=700", "spoolscope-lab", place)


def set_features(image: Path, features: str) -> None:
    """Change the features of an ext3 or ext4 image, e.g. "^dir_index".

    Raises:
        SpoolscopeError: tune2fs failed.
    """
    images.run("tune2fs", "-O", features, image)


def journal_places(image: Path) -> list[tuple[int, int]]:
    """Return the byte ranges of the journal of an ext3 or ext4 image, ends exclusive.

    Raises:
        SpoolscopeError: debugfs failed.
    """
    said = images.run("debugfs", "-R", "stat <8>", image)
    sizes = images.run("dumpe2fs", "-h", image)
    (size,) = map(int, re.findall(r"^Block size:\s+(\d+)", sizes, re.M))
    # "EXTENTS: (0-4095):98304-102399" or, of ext3, "BLOCKS: (0-11):5-16, (IND):17, ...".
    blocks = re.findall(r"\([\dA-Z-]+\):(\d+)(?:-(\d+))?", said)
    return [(int(first) * size, (int(last or first) + 1) * size) for first, last in blocks]
