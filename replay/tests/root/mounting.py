"""Mounts and unmounts below a spool in every way, too fast for a look at the mounts meanwhile.

Usage: mounting.py SPOOL. Prints the number of its calls in, or about, other filesystems, by name.
"""

# ruff: noqa: PTH102, PTH103, PTH104, PTH106, PTH108

import ctypes
import json
import os
import sys
from collections import Counter
from contextlib import suppress
from pathlib import Path

LIBC = ctypes.CDLL(None, use_errno=True)
OPEN_TREE, MOVE_MOUNT, FSOPEN, FSCONFIG, FSMOUNT = 428, 429, 430, 431, 432
CREATE, CLONE, EMPTY_PATH = 6, 1, 4
BIND, MOVE, PRIVATE, NEWNS, DETACH = 1 << 12, 1 << 13, 1 << 18, 1 << 17, 2
AT_FDCWD = -100
SPOOL = sys.argv[1]
counted: Counter[str] = Counter()


def checked(result: int) -> int:
    """Return the result of a call, or raise its error."""
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result


def mount(place: str, source: str = "none", kind: bytes = b"tmpfs", flags: int = 0) -> None:
    """Mount something on a directory of the spool."""
    counted["mount"] += 1
    wide = ctypes.c_ulong(flags)
    checked(LIBC.mount(source.encode(), place.encode(), kind, wide, None))


def umount(place: str, flags: int = 0) -> None:
    """Unmount the last mount at a place."""
    counted["umount2"] += 1
    checked(LIBC.umount2(place.encode(), flags))


def move_mount(descriptor: int, place: str) -> None:
    """Mount the tree or filesystem of a descriptor."""
    counted["move_mount"] += 1
    to = ctypes.c_char_p(place.encode())
    checked(LIBC.syscall(MOVE_MOUNT, descriptor, b"", AT_FDCWD, to, EMPTY_PATH))


def mkdir_there(path: str) -> None:
    """Make a directory in another filesystem."""
    counted["mkdir"] += 1
    os.mkdir(path)


def touch(path: str) -> None:
    """Make a file."""
    Path(path).touch()


def quickly() -> None:
    """Use one directory in turn without and with a filesystem on it."""
    os.mkdir("quick")
    for turn in range(20):
        mount(f"{SPOOL}/quick")
        mkdir_there(f"{SPOOL}/quick/d")
        touch(f"{SPOOL}/quick/d/f")
        os.rename("quick/d/f", "quick/d/g")
        os.chdir("quick/d")
        touch("own")
        touch(f"../../up{turn}")
        os.chdir("../..")
        umount("quick")
        os.mkdir("quick/d")
        touch("quick/d/g")
        os.rename("quick/d/g", f"{SPOOL}/quick/d/h")
        if turn:
            os.unlink("quick/d/h")
            os.rmdir(f"{SPOOL}/quick/d")
        else:
            os.rename("quick/d", "quick/first")


def one_on_another() -> None:
    """Mount on a mount, bind the spool there, and rename directories above."""
    os.makedirs("n/a/b")
    os.mkdir("shown")
    mount("n/a")
    mkdir_there("n/a/x")
    mount("n/a/x")
    touch("n/a/x/1")
    mkdir_there("n/a/bind")
    mount("n/a/bind", f"{SPOOL}/shown", flags=BIND)
    touch("n/a/bind/1")
    os.rename("n/a/bind/1", f"{SPOOL}/n/a/bind/2")
    os.rename("n", "nn")
    touch("nn/a/bind/3")
    touch("nn/a/x/2")
    umount("nn/a", DETACH)
    touch("nn/a/b/1")


def moved() -> None:
    """Move a mount to another directory."""
    os.mkdir("from")
    os.mkdir("to")
    mount("from")
    mount("to", "from", flags=MOVE)
    touch("to/2")
    touch("from/real")
    umount("to")
    touch("to/real")


def by_descriptors() -> None:
    """Mount as newer programs do."""
    os.mkdir("tree")
    os.mkdir("tree-of")
    tree = checked(LIBC.syscall(OPEN_TREE, AT_FDCWD, f"{SPOOL}/tree-of".encode(), CLONE))
    move_mount(tree, f"{SPOOL}/tree")
    os.close(tree)
    touch("tree/1")
    os.rename(f"{SPOOL}/tree/1", f"{SPOOL}/tree/2")
    os.mkdir("tree/d")
    umount("tree")
    touch("tree/own")
    made = checked(LIBC.syscall(FSOPEN, b"tmpfs", 0))
    checked(LIBC.syscall(FSCONFIG, made, CREATE, None, None, 0))
    new = checked(LIBC.syscall(FSMOUNT, made, 0, 0))
    move_mount(new, "tree")
    mkdir_there("tree/there")
    touch("tree/own2")
    os.close(new)
    os.close(made)
    umount("tree", DETACH)
    os.unlink("tree/own")


def alone() -> None:
    """Mount in a namespace that this process makes for itself and its child."""
    os.mkdir("alone")
    if not (child := os.fork()):
        checked(LIBC.unshare(NEWNS))
        checked(LIBC.mount(b"none", b"/", None, ctypes.c_ulong(PRIVATE | 1 << 14), None))
        mount(f"{SPOOL}/alone")
        os.mkdir("alone/p")
        touch(f"{SPOOL}/alone/p/1")
        if not os.fork():
            os.mkdir("alone/child")
            os._exit(0)
        os.wait()
        os._exit(0)
    os.waitpid(child, 0)
    counted.update(mkdir=2, mount=1)
    os.mkdir("alone/p")
    touch(f"{SPOOL}/alone/p/2")


def refused() -> None:
    """Fail to unmount a directory that is no mount point."""
    with suppress(OSError):
        umount("alone")


if __name__ == "__main__":
    os.chdir(SPOOL)
    # systemd makes mounts shared, and shared mounts cannot be moved.
    checked(LIBC.unshare(NEWNS))
    checked(LIBC.mount(b"none", b"/", None, ctypes.c_ulong(PRIVATE | 1 << 14), None))
    for act in (quickly, one_on_another, moved, by_descriptors, alone, refused):
        act()
    print(json.dumps(counted))
