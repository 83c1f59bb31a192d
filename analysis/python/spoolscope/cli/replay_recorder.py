"""Recording of a replay with the production recorder."""

import os
from pathlib import Path

from spoolscope.cli.output import warn
from spoolscope.replay.job import Recorder
from spoolscope.tracers.session import Request, record
from spoolscope.traces.phases import Progress


def replay_recorder() -> Recorder | None:
    """Return the function that records a replay, or warn and return None."""
    if os.geteuid() != 0:
        warn("not root: the replays are not recorded, so nothing says why they differ")
        return None

    def run(mount: Path, words: list[str], output: Path, show: Progress) -> int:
        # The names are those of the trace: already pseudonyms, or kept on purpose.
        request = Request(
            spools=[mount], output=output, command=words, pids=[], cgroups=[], comms=[],
            keep_names=True, snapshot="none",
        )  # fmt: skip
        made = record(request, show)
        if made.failure is not None:
            warn(f"the recorder of a replay ended early: {made.failure}")
        elif made.command_status is None or (made.signalled and made.command_status == 0):
            # The signal came before the replay began, or between its end and the recorder's.
            raise KeyboardInterrupt
        return made.command_status or 0

    return run
