"""Descends from the root to DIRECTORY, name by name, as rsync does, and works in it from there.

from_above.py DIRECTORY
"""

import os
import sys
from pathlib import Path

FILES = 20


def main() -> None:
    """Make directories with inode numbers of removed files, and set modes by descriptor."""
    place = os.open("/", os.O_PATH | os.O_DIRECTORY)
    for part in Path(sys.argv[1]).parts[1:]:
        os.stat(part, dir_fd=place, follow_symlinks=False)
        below = os.open(part, os.O_PATH | os.O_DIRECTORY, dir_fd=place)
        os.close(place)
        place = below
    os.fchdir(place)
    for number in range(FILES):
        file = Path(f"file{number}")
        file.write_text("x")
        file.unlink()
        os.mkdir(f"box{number}", 0o700, dir_fd=place)
        box = os.open(f"box{number}", os.O_RDONLY | os.O_DIRECTORY, dir_fd=place)
        os.fchmod(box, 0o751)
        os.close(os.open("mail", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600, dir_fd=box))
        os.close(box)
    os.close(place)


main()
