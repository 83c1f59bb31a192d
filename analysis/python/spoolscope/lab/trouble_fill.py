"""Initial content of the filesystems of troubles."""

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

from spoolscope.lab.fill import fill_directory
from spoolscope.lab.load import MESSAGE
from spoolscope.lab.trouble_load import BIG, WIDE

NAMES, FOLDERS, MESSAGES, BIG_BYTES = 6000, 150, 10, 32 << 20


def _wide(mount: Path) -> None:
    fill_directory(mount / WIDE, NAMES)


def _folders(mount: Path) -> None:
    for n in range(FOLDERS):
        (box := mount / "folders" / f"{n}").mkdir(parents=True)
        for message in range(MESSAGES):
            (box / f"{message}.host").write_bytes(MESSAGE)


def _big(mount: Path) -> None:
    (mount / BIG).write_bytes(os.urandom(BIG_BYTES))


FILLERS: dict[str, Callable[[Path], None]] = {"wide": _wide, "folders": _folders, "big": _big}
"""Contents that fill a filesystem: a directory of many names, folders of messages, a large file."""


def fill(mount: Path, what: str) -> None:
    """Make the content, and write it to the disk."""
    if what:
        FILLERS[what](mount)
    subprocess.run(["sync", "-f", mount], check=True)


def warm(mount: Path) -> None:
    """Look at every name and read every file."""
    for place, _, names in os.walk(mount):
        for name in names:
            Path(place, name).read_bytes()
