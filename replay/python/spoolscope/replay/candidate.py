"""A candidate: a filesystem with its options, or an existing directory."""

import hashlib
import re
from dataclasses import dataclass
from pathlib import Path

SAFE = "nosuid,nodev"
DIRECTORY = "dir"
SAME, NOT_STATED = "same", "not stated"
LONGEST_LABEL = 60


@dataclass(frozen=True)
class Candidate:
    """A filesystem with its options, or an existing directory.

    Attributes:
        name: As given on the command line.
        fstype: Filesystem type; "dir" for a directory.
        mkfs: Program and options; what ``ends`` of the type says follows them.
        mount_options: For mount -o.
        package: Debian package of the mkfs program.
        directory: The directory of a ``dir:`` candidate.
        journal: Bytes of a separate journal or log device; 0: it has none.
        layers: What it lies on, lowest first: dm-crypt, md, ..., or the candidate below an overlay.
        below: That candidate.
        export: How a server exports it: "sync", or more options of exports(5); empty without one.
        model: Name of a device model; empty: the device as it is.
        smallest: Bytes of the smallest device that it fits on.
        reason: One sentence: why anybody compares it.
        source: Where the configuration comes from.
        instead: What differs from the published configuration, and why.
        durability: ``SAME`` as ext4 by default, or what is weaker and why.
        kernels: Series of Debian's kernels that have it, for a machine that boots them.
        kernel: The one of these that it is to run on where kernels are compared.
    """

    name: str
    fstype: str
    mkfs: tuple[str, ...] = ()
    mount_options: str = f"noatime,{SAFE}"
    package: str = ""
    directory: Path | None = None
    journal: int = 0
    layers: tuple[str, ...] = ()
    below: "Candidate | None" = None
    export: str = ""
    model: str = ""
    smallest: int = 0
    reason: str = ""
    source: str = ""
    instead: str = ""
    durability: str = SAME
    kernels: tuple[str, ...] = ()
    kernel: str = ""

    @property
    def label(self) -> str:
        """Its name in names of files."""
        plain = re.sub(r"[^\w.+]+", "-", self.name.replace("/", "_")).strip("-")
        if len(plain) <= LONGEST_LABEL:
            return plain
        return f"{plain[:LONGEST_LABEL]}-{hashlib.sha256(self.name.encode()).hexdigest()[:8]}"


def in_directory(text: str) -> Candidate:
    """Return the candidate ``dir:PATH``."""
    path = Path(text.removeprefix(f"{DIRECTORY}:"))
    return Candidate(text, DIRECTORY, mount_options="", directory=path)
