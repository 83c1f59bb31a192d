"""Candidates: filesystems with their options, or an existing directory."""

import os
import re
import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from spoolscope.replay import images
from spoolscope.replay.directories import check_directory
from spoolscope.traces.errors import USAGE, SpoolscopeError
from spoolscope.traces.filesystems import FILESYSTEMS

SERIES = re.compile(r"\d+\.\d+")
"""Of kernels: "6.1"."""
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
        journal: Bytes of a separate journal or log device; 0: it has none.
        layers: What it lies on, lowest first: dm-crypt, md, ..., or the candidate below an overlay.
        model: Name of a device model; empty: the device as it is.
        reason: One sentence: why anybody compares it.
        source: Where the configuration comes from.
        durability: "same" as the reference of a comparison, or what is weaker and why.
        kernels: Series of Debian's kernels that have it, for a machine that boots them.
        kernel: The one of these that it is to run on where kernels are compared.
    """

    name: str
    fstype: str
    mkfs: tuple[str, ...] = ()
    mount_options: str = SAFE
    package: str = ""
    directory: Path | None = None
    journal: int = 0
    layers: tuple[str, ...] = ()
    model: str = ""
    reason: str = ""
    source: str = ""
    durability: str = "same"
    kernels: tuple[str, ...] = ()
    kernel: str = ""

    @property
    def label(self) -> str:
        """Its name in names of files."""
        return self.name.replace(":", "-").replace("/", "_")


def _preset(name: str, fstype: str, *options: str) -> Candidate:
    kind = FILESYSTEMS[fstype]
    return Candidate(
        name,
        fstype,
        kind.mkfs_words(),
        ",".join((SAFE, *options)),
        kind.package,
        kernels=kind.kernels,
    )


PRESETS = {
    c.name: c
    for c in (
        _preset("ext4", "ext4"),
        _preset("ext3", "ext3"),
        *(
            _preset(f"{fstype}-{mode}", fstype, f"data={mode}")
            for fstype in ("ext4", "ext3")
            for mode in ("journal", "writeback")
        ),
        _preset("ext2", "ext2"),
        _preset("xfs", "xfs"),
        _preset("btrfs", "btrfs"),
        _preset("btrfs-zstd", "btrfs", "compress=zstd"),
    )
}


def parse(text: str) -> Candidate:
    """Return the candidate named on the command line; ``ext4@6.1`` is ext4 on that kernel.

    Raises:
        SpoolscopeError: it is neither a preset nor ``dir:PATH``.
    """
    name, at, series = text.rpartition("@")
    if at and SERIES.fullmatch(series):
        return replace(parse(name), name=text, kernel=series)
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
