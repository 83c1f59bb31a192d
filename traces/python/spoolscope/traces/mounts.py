"""Mounts of a process, by /proc/PID/mountinfo, proc(5).

For a btrfs subvolume stat(2) has a device of its own, mountinfo that of its filesystem.
"""

import re
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Mount:
    """One mount.

    Attributes:
        device: Number of the filesystem's device, as major:minor.
        root: The directory of the filesystem that is mounted.
        place: Its mount point.
        propagates: Mounts and unmounts below it in a peer or a master are repeated here.
        fstype: Type of the filesystem.
        source: A device for most types; any text for others.
    """

    device: str
    root: Path
    place: Path
    propagates: bool
    fstype: str
    source: str


def mounts(process: int | str = "thread-self") -> list[Mount]:
    """Return the mounts that a process sees, in the order in which they were made.

    Raises:
        OSError: the process is gone, or may not be read.
    """
    text = Path(f"/proc/{process}/mountinfo").read_text(errors="surrogateescape")
    return [_mount(line) for line in text.split("\n") if line]


def _mount(line: str) -> Mount:
    """Parse "36 35 98:0 /root /mount options shared:1 - fstype source superoptions"."""
    words = [_plain(word) for word in line.split(" ")]
    dash = words.index("-", 6)
    tags = [tag.partition(":")[0] for tag in words[6:dash]]
    return Mount(
        device=words[2],
        root=Path(words[3]),
        place=Path(words[4]),
        propagates="shared" in tags or "master" in tags,
        fstype=words[dash + 1],
        source=words[dash + 2],
    )


def _plain(word: str) -> str:
    """Replace the escapes of space, tab, newline and backslash."""
    return re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal[1], 8)), word)
