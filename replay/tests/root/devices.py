"""Makes device nodes, and makes all possible calls on them; run in the spool to be recorded.

It prints how many nodes it made ("stand_in"), and how many calls open one, or need one that is
open ("not_a_file").
"""

# ruff: noqa: PTH101, PTH102, PTH104, PTH108, PTH116, PTH208
import ctypes
import json
import os
import stat
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

WHITEOUT = 4
NOTHING = 0
left_out = Counter[str]()


def fails(error: int, call: Callable[..., Any], *args: Any, **more: Any) -> None:
    """Make a call that must fail with this error."""
    found = 0
    try:
        call(*args, **more)
    except OSError as failed:
        found = failed.errno or 0
    assert found == error, (call.__name__, args, found)


def by_name() -> None:
    """Make calls that need only a name."""
    fails(17, os.mknod, "null", stat.S_IFCHR, os.makedev(1, 3))
    fails(2, os.mknod, "no/null", stat.S_IFCHR, os.makedev(1, 3))
    fails(17, os.mkdir, "null")
    fails(17, os.open, "null", os.O_CREAT | os.O_EXCL)
    fails(20, os.open, "null/x", os.O_RDONLY)
    fails(20, os.rmdir, "white")
    fails(20, os.chdir, "null")
    fails(22, os.truncate, "null", 4)
    os.chmod("null", 0o600)
    os.chown("null", 5, 6)
    os.stat("disk")
    os.link("null", "other")
    os.rename("null", "moved")
    os.rename("before/loop", "loop")
    os.unlink("before/white")
    os.unlink("white")
    Path("file").write_text("hello")
    os.rename("file", "other")


def opened() -> None:
    """Open them, and use the descriptors; the replay leaves all of that out."""
    fails(6, os.open, "white", os.O_RDONLY)
    fails(6, os.open, "before/white", os.O_RDWR)
    fd = os.open("null", os.O_RDWR | os.O_CREAT | os.O_TRUNC)
    os.write(fd, bytes(1000))
    os.read(fd, 10)
    fails(22, os.ftruncate, fd, 7)
    left_out["not_a_file"] += 4
    os.fstat(fd)
    os.fchmod(fd, 0o622)
    os.fchown(fd, 7, 8)
    os.close(os.dup(fd))
    fails(20, os.fchdir, fd)
    fails(20, os.unlink, "x", dir_fd=fd)
    os.close(fd)
    path = os.open("white", os.O_PATH)
    left_out["not_a_file"] += 1
    fails(20, os.open, "y", os.O_CREAT, dir_fd=path)
    os.close(path)


def white_out() -> None:
    """Leave devices in the place of renamed files, as overlayfs does."""
    libc = ctypes.CDLL(None)
    for name in ("a", "b"):
        Path(name).write_text(name)
    os.mkdir("folder")
    Path("folder/in").touch()
    for old, new in ((b"a", b"c"), (b"b", b"a"), (b"folder", b"moved-folder")):
        assert libc.renameat2(-100, old, -100, new, WHITEOUT) == 0
    os.stat("folder")
    os.unlink("b")


for name, kind, device in (
    ("null", stat.S_IFCHR, os.makedev(1, 3)),
    ("disk", stat.S_IFBLK, os.makedev(7, 98)),
    ("white", stat.S_IFCHR, NOTHING),
):
    os.mknod(name, kind | 0o640, device)
    left_out["stand_in"] += 1
opened()
by_name()
white_out()
os.listdir(".")
os.listdir("before")
print(json.dumps(left_out))
