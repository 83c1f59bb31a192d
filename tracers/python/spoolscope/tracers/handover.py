"""Change of recorders at a border of a minute: no time is summed twice, and none is missed.

The new recorder begins beside the old one, chooses a border, and leaves a note of it in the working
directories of both. The old one writes no minute from the border on, and ends; the new one writes
none before it. If the new one fails before, the old one goes on.
"""

import json
import math
from pathlib import Path

from spoolscope.traces.errors import SpoolscopeError
from spoolscope.traces.files import write_file

LEAD_S = 2.0
"""Least time from the note to the border, in which the old recorder has to see it."""
_FROM, _UNTIL = "from.json", "until.json"
_ALWAYS = (0, 1 << 62)


def agree(new: Path, old: Path, now_s: float, period_s: float) -> int:
    """Choose the border, and leave the notes; return it in seconds since the epoch.

    Args:
        new: Working directory of the new recorder, which records by now.
        old: Working directory of the old one.
        now_s: The present time.
        period_s: Length of a minute.
    """
    border_s = int(math.ceil((now_s + LEAD_S) / period_s) * period_s)
    for work, name in ((new, _FROM), (old, _UNTIL)):
        write_file(work / name, json.dumps(border_s), private=True)
    return border_s


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
        raise SpoolscopeError(
            f"the note {file} is damaged", remedy="start the recorder again"
        ) from error
