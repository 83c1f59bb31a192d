"""Tries of what other programs may hold up for a while."""

import time

PAUSE_S = 0.1


class Patience:
    """Limits the time for which something is tried again."""

    def __init__(self, seconds: float) -> None:
        """Begin the time."""
        self._end = time.monotonic() + seconds

    def lasts(self) -> bool:
        """Return, after a pause, whether to try again; false at once if the time is over."""
        if time.monotonic() > self._end:
            return False
        time.sleep(PAUSE_S)
        return True
