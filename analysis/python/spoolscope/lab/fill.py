"""Initial content of the lab's filesystems."""

import os
import subprocess
from pathlib import Path

from spoolscope.lab.load import MESSAGE, make_box, write_message
from spoolscope.lab.place import read_inodes

MESSAGES, SHARED, FRAGMENTS, EXTENTS = 1200, 4000, 4, 4000
BOXES = 4


def fill(mount: Path, what: str) -> None:
    """Make nothing, messages (in 40 folders), shared (one directory) or fragments (of files)."""
    if what == "messages":
        for n in range(MESSAGES):
            box = mount / "old" / f"d{n % 40}"
            box.mkdir(parents=True, exist_ok=True)
            (box / f"{n}.host").write_bytes(MESSAGE)
    if what == "shared":
        fill_directory(mount / "shared", SHARED)
    if what == "fragments":
        for n in range(FRAGMENTS):
            _fragmented(mount / f"fragments{n}")
    subprocess.run(["sync", "-f", mount], check=True)


def fill_directory(path: Path, names: int) -> None:
    """Make a directory of empty files."""
    path.mkdir()
    for n in range(names):
        os.mknod(path / f"{n}", 0o100600)


def warm(mount: Path, what: str) -> None:
    """Read into the cache only what the victims need: their own reads are not the fault."""
    if what == "nothing":
        list(mount.iterdir())
    if what == "shared":
        list((mount / "shared").iterdir())
        write_message(mount / "shared" / "first")
    if what == "fragments":
        for n in range(BOXES):
            make_box(box := mount / f"box{n}")
            write_message(box / "tmp" / "first")
            write_message(box / "dovecot.index.log")
        (mount / "shared").mkdir()
        write_message(mount / "shared" / "first")
        read_inodes(mount)


def _fragmented(path: Path) -> None:
    """Make a file whose every other block is a hole, so that each other block is an extent."""
    with path.open("wb") as file:
        size = os.fstatvfs(file.fileno()).f_bsize
        for n in range(EXTENTS):
            os.pwrite(file.fileno(), MESSAGE[:size], 2 * n * size)
