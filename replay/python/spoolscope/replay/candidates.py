"""Candidates: filesystems on fresh loop images, or an empty directory, always cleaned up."""

import fcntl
import json
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from spoolscope.replay import images
from spoolscope.replay.age import GROWTH, Age
from spoolscope.replay.interrupts import undisturbed
from spoolscope.traces.errors import USAGE, SpoolscopeError
from spoolscope.traces.text import decoded

SAFE = "noatime,nosuid,nodev"
MIB = 1 << 20
SMALLEST_BYTES = 1 << 30


@dataclass(frozen=True)
class Candidate:
    """A filesystem with its options, or an existing directory.

    Attributes:
        name: As given on the command line.
        fstype: Filesystem type; "dir" for a directory.
        mkfs: Program and options; the image's path is appended.
        mount_options: For mount -o.
        package: Debian package of the mkfs program.
        directory: The directory of a ``dir:`` candidate.
    """

    name: str
    fstype: str
    mkfs: tuple[str, ...] = ()
    mount_options: str = SAFE
    package: str = ""
    directory: Path | None = None

    @property
    def label(self) -> str:
        """Its name in names of files."""
        return self.name.replace(":", "-").replace("/", "_")


# Inode tables are written by mkfs: a kernel thread that does it later would disturb the replay.
_EXT = ("-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0")
PRESETS = {
    c.name: c
    for c in (
        Candidate("ext4", "ext4", ("mkfs.ext4", *_EXT), package="e2fsprogs"),
        Candidate("ext3", "ext3", ("mkfs.ext3", *_EXT), package="e2fsprogs"),
        *(
            Candidate(
                f"{fstype}-{mode}",
                fstype,
                (f"mkfs.{fstype}", *_EXT),
                f"{SAFE},data={mode}",
                package="e2fsprogs",
            )
            for fstype in ("ext4", "ext3")
            for mode in ("journal", "writeback")
        ),
        Candidate(
            "ext2",
            "ext2",
            ("mkfs.ext2", "-q", "-F", "-E", "lazy_itable_init=0"),
            package="e2fsprogs",
        ),
        Candidate("xfs", "xfs", ("mkfs.xfs", "-q", "-f"), package="xfsprogs"),
        Candidate("btrfs", "btrfs", ("mkfs.btrfs", "-q", "-f"), package="btrfs-progs"),
        Candidate(
            "btrfs-zstd",
            "btrfs",
            ("mkfs.btrfs", "-q", "-f"),
            f"{SAFE},compress=zstd",
            package="btrfs-progs",
        ),
    )
}


def parse(text: str) -> Candidate:
    """Return the candidate named on the command line.

    Raises:
        SpoolscopeError: it is neither a preset nor ``dir:PATH``.
    """
    if text in PRESETS:
        return PRESETS[text]
    if text.startswith("dir:") and len(text) > len("dir:"):
        return Candidate(text, "dir", mount_options="", directory=Path(text[4:]))
    raise SpoolscopeError(
        f"unknown candidate {text!r}",
        remedy=f"use --on {', '.join(PRESETS)} or dir:PATH",
        exit_code=USAGE,
    )


def check(candidate: Candidate, meta: dict[str, Any], *, ages: bool = False) -> None:
    """Make sure, before anything is changed, that a candidate can be used.

    Args:
        candidate: What to replay on.
        meta: meta.json of the trace; its spools are never written to.
        ages: It is to be filled nearly up and left in pieces: only an image of our own is.

    Raises:
        SpoolscopeError: not root, mkfs missing, a directory not empty, to be aged or a
            production spool.
    """
    if candidate.directory is not None:
        if ages:
            raise SpoolscopeError(
                f"{candidate.name} is not aged: its filesystem would be filled nearly up",
                remedy="use --age with images, such as --on ext4",
                exit_code=USAGE,
            )
        _check_directory(candidate.directory, meta)
        return
    if os.geteuid() != 0:
        raise SpoolscopeError(
            f"candidate {candidate.name} needs root to mount a fresh image",
            remedy="run with sudo, or use --on dir:PATH with an empty directory",
        )
    if not shutil.which(candidate.mkfs[0], path=images.program_path()):
        raise SpoolscopeError(
            f"program {candidate.mkfs[0]} is missing",
            remedy=f"apt-get install {candidate.package}",
        )


def _check_directory(directory: Path, meta: dict[str, Any]) -> None:
    if not directory.is_dir():
        raise SpoolscopeError(
            f"target {directory} is not a directory",
            remedy=f"mkdir {directory}",
            exit_code=USAGE,
        )
    real = directory.resolve()
    for spool in meta.get("spools", []):
        mount = Path(spool["mount"])
        if real == mount or (mount != Path("/") and (mount in real.parents or _is(spool, real))):
            raise SpoolscopeError(
                f"target {directory} lies on {mount}, the spool this trace was recorded on",
                remedy="give an empty directory elsewhere with --on dir:PATH",
                exit_code=USAGE,
            )
    _check_empty(directory)
    if not os.access(real, os.W_OK | os.X_OK):
        raise SpoolscopeError(
            f"target {directory} may not be written to",
            remedy="give a directory of your own with --on dir:PATH, or run with sudo",
            exit_code=USAGE,
        )


def _check_empty(directory: Path) -> None:
    if any(entry.name != "lost+found" for entry in directory.iterdir()):
        raise SpoolscopeError(
            f"target {directory} is not empty",
            remedy="give an empty directory with --on dir:PATH",
            exit_code=USAGE,
        )


def _lock(descriptor: int, directory: Path) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise SpoolscopeError(
            f"another replay uses target {directory}",
            remedy="give an empty directory with --on dir:PATH",
        ) from None


@contextmanager
def _alone_in(directory: Path) -> Iterator[None]:
    """Keep another replay out of an empty directory, which is emptied in the end."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        _lock(descriptor, directory)
        _check_empty(directory)
        before = {entry.name for entry in directory.iterdir()}
        try:
            yield
        finally:
            with undisturbed():
                _empty(directory, before)
    finally:
        os.close(descriptor)


def _is(spool: dict[str, Any], directory: Path) -> bool:
    """Tell whether a directory lies on the spool that was recorded, whatever its name is.

    The name may be a pseudonym, which keeps its length.
    """
    length = len(decoded(spool["mount"]))
    above = (directory, *directory.parents)
    place = next((place for place in above if len(os.fsencode(place)) == length), None)
    mounts = _mounts()
    holder = place
    while holder is not None and (name := _as_in_mountinfo(holder)) not in mounts:
        if holder == holder.parent:
            return False  # in a chroot, whose root is no mount point
        holder = holder.parent
    if holder is None or (holder != place and not spool.get("part")):
        return False
    major, minor = map(int, mounts[name].split(":"))
    size = os.statvfs(holder)
    same = major << 20 | minor, size.f_blocks * size.f_frsize
    return same == (spool.get("dev"), spool.get("size_bytes"))


def _mounts() -> dict[str, str]:
    """Return the device of each mount point.

    stat(2) gives a btrfs subvolume a device of its own, mountinfo the superblock's: proc(5).
    """
    text = Path("/proc/self/mountinfo").read_text(errors="surrogateescape")
    return {words[4]: words[2] for words in (line.split(" ") for line in text.splitlines())}


def _as_in_mountinfo(path: Path) -> str:
    return re.sub(r"[ \t\n\\]", lambda c: f"\\{ord(c[0]):03o}", str(path))


@dataclass
class Target:
    """A prepared candidate.

    Attributes:
        mount: Directory that becomes the spool.
        options: Mount options as the kernel lists them.
        copied: The image is a copy of one that holds the fixture already.
    """

    mount: Path
    options: str
    image: Path | None = None
    copied: bool = False

    def cool(self, candidate: Candidate, keep: Path | None = None) -> None:
        """Write everything back and forget it, so that the replay starts with cold caches.

        Args:
            candidate: What the target was made of.
            keep: Where to leave a copy of the image as it is then.
        """
        if self.image is None:
            images.run("sync", "-f", self.mount)
            return
        images.unmount(self.mount)
        if keep is not None and not self.copied:
            images.copy(self.image, keep)
            images.drop_cached(keep)
        images.drop_cached(self.image)
        images.mount(self.image, self.mount, candidate.fstype, candidate.mount_options)


@contextmanager
def prepared(
    candidate: Candidate, work: Path, size_bytes: int, kept: Path | None = None
) -> Iterator[Target]:
    """Make a candidate ready and remove every trace of it afterwards, whatever happens.

    Args:
        candidate: What to make.
        work: Directory for the image.
        size_bytes: Size of the image.
        kept: Image to copy instead of making one, if it is there.

    Raises:
        SpoolscopeError: no space for the image, or mkfs or mount failed.
    """
    if candidate.directory is not None:
        with _alone_in(candidate.directory):
            yield Target(candidate.directory.resolve(), "")
        return
    place = Path(tempfile.mkdtemp(prefix="spoolscope-", dir=work))
    image, mount = place / f"{candidate.name}.img", place / "mnt"
    try:
        mount.mkdir()
        copied = kept is not None and kept.exists()
        if kept is not None and copied:
            images.copy(kept, image)
        else:
            images.make(image, size_bytes, candidate.mkfs)
        images.mount(image, mount, candidate.fstype, candidate.mount_options)
        yield Target(mount, _mounted_options(mount), image, copied)
    finally:
        with undisturbed():
            images.unmount(mount)
            shutil.rmtree(place, ignore_errors=True)


def image_bytes(content_bytes: int, names: int, age: Age | None = None) -> int:
    """Return an image size that leaves every candidate well below full."""
    needed = (content_bytes + 8192 * names) * (1 if age is None else GROWTH)
    return max(SMALLEST_BYTES, -(-(2 * needed + 512 * MIB) // (64 * MIB)) * 64 * MIB)


def grows_to(candidate: Candidate, size_bytes: int, age: Age | None) -> int:
    """Return how much of a sparse image a replay may come to use.

    What ages it takes room without being written, except on ext2 and ext3.
    """
    written = age is not None and candidate.fstype in ("ext2", "ext3")
    return size_bytes if written else size_bytes // 2


def check_space(work: Path, needed_bytes: int) -> None:
    """Fail early if the (sparse) image would not fit where it is made."""
    free = shutil.disk_usage(work).free
    if free < needed_bytes:
        raise SpoolscopeError(
            f"{work} has {free // MIB} MiB free, the image may grow to {needed_bytes // MIB} MiB",
            remedy="give another --work DIR",
        )


def filesystem_type(place: Path) -> str:
    """Return the type of the filesystem that a directory lies on; empty if nobody knows."""
    words = ["findmnt", "--noheadings", "--output", "FSTYPE", "--target", str(place)]
    found = subprocess.run(words, capture_output=True, text=True, check=False).stdout.split()
    return found[-1] if found else ""  # of several at one place, the last is on top


def _mounted_options(mount: Path) -> str:
    found = subprocess.run(
        ["findmnt", "--json", "--output", "OPTIONS", "--target", str(mount)],
        capture_output=True,
        text=True,
        check=False,
    )
    try:
        return str(json.loads(found.stdout)["filesystems"][0]["options"])
    except (ValueError, KeyError, IndexError):
        return ""


def remove(top: Path) -> None:
    """Remove a tree whose directories may be closed to who is not root."""
    shutil.rmtree(top, ignore_errors=True)
    if top.exists():
        top.chmod(0o700)
        for path, below, _ in os.walk(top):
            for directory in (Path(path, name) for name in below):
                if not directory.is_symlink():
                    directory.chmod(0o700)
        shutil.rmtree(top, ignore_errors=True)


def _empty(directory: Path, before: set[str]) -> None:
    """Remove what the replay made: the directory was empty before, but for what mkfs made."""
    for entry in directory.iterdir():
        if entry.name in before:
            continue
        if entry.is_dir() and not entry.is_symlink():
            remove(entry)
        else:
            entry.unlink(missing_ok=True)
