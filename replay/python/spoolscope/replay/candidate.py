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
        name: The name given on the command line.
        fstype: Filesystem type; "dir" for a directory.
        mkfs: Program and options; the words of ``ends`` of its type follow them.
        mount_options: Options for mount -o.
        package: Debian package of the mkfs program.
        directory: The directory of a ``dir:`` candidate.
        journal: Bytes of a separate journal or log device; 0: it has none.
        layers: Layers below it, lowest first: dm-crypt, md, ..., or the candidate below an overlay.
        below: That candidate.
        export: Options of exports(5) for its server, such as "sync"; empty without a server.
        model: Name of a device model; empty: the device as it is.
        smallest: Bytes of the smallest device that it fits on.
        reason: One sentence that states why it is worth comparing.
        source: Source of the configuration.
        instead: Differences from the published configuration, and why.
        durability: ``SAME`` as ext4 by default, or a text: in which way it is weaker, and why.
        kernels: Series of Debian's kernels that have it, for a machine that boots them.
        kernel: The one of these that it runs on, where kernels are compared.
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
        """Its name in a form that fits in file names."""
        plain = re.sub(r"[^\w.+]+", "-", self.name.replace("/", "_")).strip("-")
        if len(plain) <= LONGEST_LABEL:
            return plain
        return f"{plain[:LONGEST_LABEL]}-{hashlib.sha256(self.name.encode()).hexdigest()[:8]}"


def in_directory(text: str) -> Candidate:
    """Return the candidate ``dir:PATH``."""
    path = Path(text.removeprefix(f"{DIRECTORY}:"))
    return Candidate(text, DIRECTORY, mount_options="", directory=path)
