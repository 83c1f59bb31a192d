"""Candidates: filesystems with their options, or an existing directory."""

import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from spoolscope.replay import images
from spoolscope.replay.directories import check_directory
from spoolscope.traces.errors import USAGE, SpoolscopeError

SAFE = "noatime,nosuid,nodev"


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
        check_directory(candidate.directory, meta)
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
