"""Uses names below files as if these were directories; run in the spool to be recorded.

The program fails unless every call fails with ENOTDIR.
"""

# ruff: noqa: PTH102, PTH103, PTH104, PTH108
import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any


def fails(call: Callable[..., Any], *args: Any, **more: Any) -> None:
    """Make a call that must fail with ENOTDIR."""
    found = 0
    try:
        call(*args, **more)
    except OSError as failed:
        found = failed.errno or 0
    assert found == errno.ENOTDIR, (call.__name__, args, found)


def by_descriptor(fd: int, box: int) -> None:
    """Give all calls names that begin at a file, also names that go back from there."""
    for name in ("x", "f", ".", "..", "x/y", "../g", "../missing"):
        for flags in (0, os.O_DIRECTORY, os.O_CREAT, os.O_CREAT | os.O_EXCL):
            fails(os.open, name, flags, dir_fd=fd)
        for call in (os.stat, os.unlink, os.rmdir, os.mkdir, os.mkfifo, os.readlink, os.utime):
            fails(call, name, dir_fd=fd)
        fails(os.symlink, "target", name, dir_fd=fd)
        fails(os.chmod, name, 0o600, dir_fd=fd)
        fails(os.chown, name, 1, 2, dir_fd=fd)
        for call in (os.rename, os.link):
            fails(call, name, "new", src_dir_fd=fd, dst_dir_fd=box)
            fails(call, "g", name, src_dir_fd=box, dst_dir_fd=fd)
        fails(os.rename, "sub", name, src_dir_fd=box, dst_dir_fd=fd)
        fails(os.rename, name, name, src_dir_fd=fd, dst_dir_fd=fd)
    fails(os.fchdir, fd)


def by_name(name: str) -> None:
    """Look below a file by its name."""
    for call in (os.stat, os.rmdir, os.mkdir, os.unlink, os.listdir, os.chdir):
        fails(call, name)
    fails(os.open, name, os.O_DIRECTORY)
    for other in ("box/g", "box/sub", "missing"):
        fails(os.rename, name, other)
    for other in ("box/g", "box/sub"):
        fails(os.rename, other, name)


os.makedirs("box/sub")
for name in ("box/f", "box/g", "missing"):
    Path(name).write_text(name)
os.unlink("missing")
box = os.open("box", os.O_RDONLY)
for path, flags in (
    ("box/f", os.O_RDWR),
    ("before/file", os.O_PATH),
    ("before/pipe", os.O_PATH),
    ("before/link", os.O_PATH | os.O_NOFOLLOW),
):
    fd = os.open(path, flags)
    by_descriptor(fd, box)
    os.close(fd)
fd = os.open("before/file", os.O_RDONLY)
os.rename("before/file", "before/renamed")
by_descriptor(fd, box)
os.unlink("before/renamed")
by_descriptor(fd, box)
for name in ("box/f/x", "box/f/x/y", "before/pipe/x"):
    by_name(name)
os.unlink("box/f")
os.mkdir("box/f")
fails(os.rename, "box/f", "box/g")
Path("box/f/x").touch()
