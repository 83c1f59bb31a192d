"""Change of recorders at a border of a minute: no time is summed twice, and none is missed.

The new recorder begins beside the old one, chooses a border, and leaves a note of it in the working
directories of both. The old one writes no minute from the border on, and ends; the new one writes
none before it. If the new one fails before, the old one goes on: at each minute it looks whether
the working directory of the new one is still in use.
"""

import fcntl
import json
import math
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from spoolscope.traces import unfinished
from spoolscope.traces.errors import SpoolscopeError
from spoolscope.traces.files import write_file

LEAD_S = 2.0
"""Least time from the note to the border, in which the old recorder has to see it."""
_FROM, _UNTIL = "from.json", "until.json"
_SUCCESSOR = "successor.json"
"""The path of the new working directory; not in until.json, in which 0.2.0 reads a number."""
_ALWAYS = (0, 1 << 62)


@contextmanager
def starting(root: Path) -> Iterator[Callable[[], None]]:
    """Let no other recorder start in a directory of roll-ups; wait for one that does so now.

    Yield a function that lets the next one start, once this one can be found there; the end of the
    block does so, too.
    """
    descriptor = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)

    def started() -> None:
        # A process that was forked meanwhile has the lock, too: to close the file is not enough.
        with suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_UN)

    try:
        with suppress(OSError):  # a filesystem without locks
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield started
    finally:
        started()
        os.close(descriptor)


def agree(new: Path, old: Path, now_s: float, period_s: float) -> int:
    """Choose the border, and leave the notes; return it in seconds since the epoch.

    Args:
        new: Working directory of the new recorder, which records by now.
        old: Working directory of the old one.
        now_s: The present time.
        period_s: Length of a minute.
    """
    border_s = int(math.ceil((now_s + LEAD_S) / period_s) * period_s)
    write_file(new / _FROM, json.dumps(border_s), private=True)
    write_file(old / _SUCCESSOR, json.dumps(str(new.absolute())), private=True)
    write_file(old / _UNTIL, json.dumps(border_s), private=True)
    return border_s


def forget_dead(work: Path) -> None:
    """Remove the note of a border from an old recorder if the new one does not run any more."""
    try:
        successor = Path(json.loads((work / _SUCCESSOR).read_bytes()))
    except FileNotFoundError:
        return
    except (ValueError, TypeError) as error:
        raise _damaged(work / _SUCCESSOR) from error
    if not unfinished.in_use(successor):
        for name in (_UNTIL, _SUCCESSOR):
            (work / name).unlink(missing_ok=True)


def begun(work: Path) -> None:
    """Remove the note of a border that a new recorder has passed: a clock may be set back later."""
    (work / _FROM).unlink(missing_ok=True)


def window(work: Path) -> tuple[int, int]:
    """Return the first minute that a recorder writes, and the first one that it does not, s."""
    return _noted(work / _FROM, _ALWAYS[0]), _noted(work / _UNTIL, _ALWAYS[1])


def is_over(work: Path, minute_s: int, period_s: float) -> bool:
    """Return True if the recorder has written its last minute, of which this is the time, or none.

    Args:
        work: Its working directory.
        minute_s: The minute that it has written or left out just now.
        period_s: Length of a minute.
    """
    return minute_s + period_s >= window(work)[1]


def _noted(file: Path, otherwise: int) -> int:
    try:
        return int(json.loads(file.read_bytes()))
    except FileNotFoundError:
        return otherwise
    except ValueError as error:
        raise _damaged(file) from error


def _damaged(note: Path) -> SpoolscopeError:
    return SpoolscopeError(f"the note {note} is damaged", remedy="start the recorder again")
