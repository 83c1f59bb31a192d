"""Recording of a replay with the production recorder."""

import os
import subprocess
import sys
from pathlib import Path

from spoolscope.cli.output import warn
from spoolscope.replay.job import Recorder
from spoolscope.tracers.session import Request, record
from spoolscope.traces.phases import Progress


def replay_recorder(*, servers: bool = False) -> Recorder | None:
    """Return the function that records a replay, or warn and return None.

    Args:
        servers: The calls are those of servers that run already: record all on the spool while the
            command runs, instead of the command.
    """
    if os.geteuid() != 0:
        warn("not root: the replays are not recorded, so nothing says why they differ")
        return None

    def run(mount: Path, words: list[str], output: Path, show: Progress) -> int:
        client = _Client(words) if servers else None
        # The names are those of the trace: already pseudonyms, or kept on purpose.
        request = Request(
            spools=[mount],
            output=output,
            command=None if client else words,
            pids=[],
            cgroups=[],
            comms=[],
            keep_names=True,
            snapshot="none",
        )
        try:
            made = record(request, show, over=client.over if client else lambda: False)
            status = client.status() if client else made.command_status
        finally:
            if client:
                client.kill()
        if made.failure is not None:
            warn(f"the recorder of a replay ended early: {made.failure}")
        elif status is None or (made.signalled and status == 0):
            # The signal came before the replay began, or between its end and the recorder's.
            raise KeyboardInterrupt
        return status or 0

    return run


class _Client:
    """A program that loads servers: it begins with the recording, which ends with it."""

    def __init__(self, words: list[str]) -> None:
        self._words = words
        self._process: subprocess.Popen[bytes] | None = None

    def over(self) -> bool:
        """Return True if the program has ended; the first call starts it."""
        if self._process is None:
            null = subprocess.DEVNULL
            self._process = subprocess.Popen(self._words, stdin=null, stdout=sys.stderr)
        return self._process.poll() is not None

    def status(self) -> int | None:
        """Return its exit status; None if it did not begin or was interrupted."""
        return None if self._process is None else self._process.poll()

    def kill(self) -> None:
        """End it, if it runs."""
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()
