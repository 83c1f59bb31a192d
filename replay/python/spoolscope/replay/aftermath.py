"""The end of a used filesystem: it is unmounted, checked, mounted again and emptied."""

import fcntl
import os
import struct
import subprocess
from pathlib import Path

from spoolscope.replay import images
from spoolscope.replay.lifetime import Lifetime
from spoolscope.replay.storage import Storage
from spoolscope.replay.targets import Target

SAID_LINES = 5
NAMES_AT_ONCE = 1000
"""A command line has 2 MiB at most."""

FREE_EOFBLOCKS = 0x8080583A
"""XFS_IOC_FREE_EOFBLOCKS of <xfs/xfs_fs.h>."""
EOFBLOCKS = struct.pack("=2I120x", 1, 1)
"""Its argument: version 1, XFS_EOF_FLAGS_SYNC, no other choice."""


def aftermath(target: Target, life: Lifetime, *, whole: bool) -> None:
    """Take a used filesystem through the rest of its life.

    Args:
        target: A mounted target after its replay and verification.
        life: Receives the measurements; it already watches the devices.
        whole: Check and empty it, too; both take longer the more files there are.
    """
    if target.storage is not None:
        with life.step("umount"):
            target.storage.unmount(target.mount)
        life.count("replay")
        if whole:
            check(target.storage, life)
            target.storage.forget()
            target.storage.mount(target.mount)
    if whole:
        _remove_all(target, life)
    else:
        for step in ("check", "remove"):
            life.left_out(step, "not asked for")


def check(storage: Storage, life: Lifetime) -> None:
    """Check an unmounted filesystem with its own program, read-only and with cold caches."""
    if not (words := storage.fsck_words()):
        life.left_out("check", "no program that checks it is known")
        return
    storage.forget()
    env = {**os.environ, "PATH": images.program_path()}
    try:
        with life.step("check"):
            done = subprocess.run(
                words, capture_output=True, text=True, errors="replace", env=env, check=False
            )
    except FileNotFoundError:
        life.left_out("check", f"program {words[0]} is missing")
        return
    said = (done.stdout + done.stderr).strip().splitlines()
    life.facts["check"] = {
        "words": " ".join(word for word in words if word != str(storage.main)),
        "status": done.returncode,
        "clean": done.returncode == 0,
        "said": [] if done.returncode == 0 else said[-SAID_LINES:],
    }


def _remove_all(target: Target, life: Lifetime) -> None:
    """Remove all names, as ``rm -r`` does, and wait until that is on the disk."""
    mount = target.mount
    names = [entry.path for entry in os.scandir(mount) if entry.name != "lost+found"]
    failed = False
    with life.step("remove"):
        for at in range(0, len(names), NAMES_AT_ONCE):
            words = ["rm", "-rf", "--one-file-system", "--", *names[at : at + NAMES_AT_ONCE]]
            failed |= subprocess.run(words, capture_output=True, check=False).returncode != 0
        if target.storage is not None and target.storage.candidate.fstype == "xfs":
            _inactivate(mount)
        images.run("sync", "-f", mount)
    if failed:
        del life.steps["remove"]
        life.left_out("remove", "rm may not remove all of it")
        return
    life.capacity("after_removal", mount)


def _inactivate(mount: Path) -> None:
    """Make XFS free the blocks of removed files now.

    Since Linux 5.14 its workers do that long after the removal. Neither syncfs nor statfs waits
    for them. This ioctl does; a freeze would, too, but stays if this process is killed.
    """
    descriptor = os.open(mount, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.ioctl(descriptor, FREE_EOFBLOCKS, EOFBLOCKS)
    finally:
        os.close(descriptor)
