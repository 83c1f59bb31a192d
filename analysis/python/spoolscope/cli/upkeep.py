"""Upkeep of a recorder's own roll-ups, once an hour: old days go, small files are merged."""

import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from spoolscope.cli.compact import BY_HOUR
from spoolscope.cli.output import warn
from spoolscope.cli.printing import say
from spoolscope.cli.prune import lines
from spoolscope.tracers.rolling import own_host
from spoolscope.traces.errors import SpoolscopeError
from spoolscope.traces.rollups.names import HOUR_S
from spoolscope.traces.rollups.retention import retain

REPEATED = 3
"""Most lines of a merge that are repeated: each damaged flush has one."""


@dataclass
class Upkeep:
    """Upkeep of the roll-ups of this host, while they are recorded.

    Small files are merged by another process, which takes much memory for some seconds and may be
    stopped at any moment.

    Attributes:
        directory: The directory of the roll-ups.
        days: Age in days beyond which a day is removed, or None.
        quota_bytes: Size that the roll-ups may have, or None.
        by_hour: Age in days beyond which hours are summed up, or None.
        merging: The process that merges, or did so last.
        complaints: File with what it prints on stderr: a pipe would stop it when full.
    """

    directory: Path
    days: int | None
    quota_bytes: int | None
    by_hour: int | None = None
    _last_s: float = -HOUR_S
    merging: subprocess.Popen[bytes] | None = None
    complaints: IO[str] | None = None

    def __call__(self) -> None:
        """Remove and merge, if the last time was an hour ago."""
        if time.monotonic() - self._last_s < HOUR_S:
            return
        self._last_s = time.monotonic()
        if self.days is not None or self.quota_bytes is not None:
            self._remove()
        self._merge()

    def end(self) -> None:
        """Stop what still runs."""
        if self.merging is not None:
            self.merging.terminate()
            self.merging.wait()
        if self.complaints is not None:
            self.complaints.close()

    def _remove(self) -> None:
        try:
            done = retain(
                self.directory, days=self.days, quota_bytes=self.quota_bytes, hosts=[own_host()]
            )
        except (OSError, SpoolscopeError) as error:  # such as files that a merge removes
            warn(f"old roll-ups are not removed: {error}")
            return
        if done.refused:
            warn(f"no roll-ups are removed by age: {done.refused}")
        if done.removed:
            say(*lines(done), err=True)

    def _merge(self) -> None:
        """Start the next merge; say what was wrong with the last one."""
        if self.merging is not None and self.merging.poll() is None:
            return
        if self.complaints is not None:
            with self.complaints:
                self._repeat(self.complaints)
        words = ["nice", sys.executable, "-m", "spoolscope.cli.main", "compact", "--unmerged"]
        words += ["--host", own_host(), "--quiet", str(self.directory)]
        if self.by_hour is not None:
            words += [BY_HOUR, f"{self.by_hour}d"]
        self.complaints = os.fdopen(os.memfd_create("complaints"), "w+", errors="replace")
        try:
            self.merging = subprocess.Popen(
                words,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=self.complaints,
                start_new_session=True,  # Ctrl-C is for the recorder, which ends it
            )
        except OSError as error:
            warn(f"small files are not merged: {error}")

    def _repeat(self, complaints: IO[str]) -> None:
        """Repeat the first lines that a merge printed, and count the others."""
        complaints.seek(0)
        said = complaints.read().splitlines()
        if said:
            more = f" (and {len(said) - REPEATED:,} more lines)" if len(said) > REPEATED else ""
            warn(f"small files are not all merged: {' '.join(said[:REPEATED])}{more}")
