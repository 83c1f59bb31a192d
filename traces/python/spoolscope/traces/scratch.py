"""A directory for temporary files, removed by its process or, if that was killed, by the next one.

A process holds a lock on its directory until it ends in any way, so a directory without a lock is a
leftover. Process ids would not do: containers share directories, but not ids.
"""

import atexit
import fcntl
import os
import shutil
import tempfile
from functools import cache
from pathlib import Path

PREFIX = "spoolscope-scratch-"


@cache
def scratch() -> Path:
    """Return this process's directory for temporary files; remove those left over by others."""
    _sweep(Path(tempfile.gettempdir()))
    while True:
        place = Path(tempfile.mkdtemp(prefix=PREFIX))
        if _locked(place) is not None and place.exists():  # no other process removed it in between
            atexit.register(shutil.rmtree, place, ignore_errors=True)
            return place


def _sweep(parent: Path) -> None:
    for place in parent.glob(f"{PREFIX}*"):
        if (lock := _locked(place)) is not None:
            shutil.rmtree(place, ignore_errors=True)
            os.close(lock)


def _locked(place: Path) -> int | None:
    """Lock a directory of this user; return None if it is in use, or another user's."""
    try:
        lock = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError:
        return None
    try:
        if os.fstat(lock).st_uid == os.geteuid():
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return lock
    except BlockingIOError:
        pass
    os.close(lock)
    return None
