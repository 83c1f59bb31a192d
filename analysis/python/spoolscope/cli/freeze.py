"""The verb freeze."""

import json
import os
import signal
import time
from contextlib import suppress
from pathlib import Path
from shlex import quote
from typing import Self

import click

from spoolscope.cli.output import emit_json, json_option, wrote
from spoolscope.tracers.rolling import windows_of
from spoolscope.traces.digests import read_meta
from spoolscope.traces.errors import USAGE, SpoolscopeError
from spoolscope.traces.recording import ANSWERS, CAPTURES, FROZEN, Recording, segment_number
from spoolscope.traces.rollups.names import MARKER, partition
from spoolscope.traces.rollups.schema import VERSION
from spoolscope.traces.unfinished import in_use

POLL_S = 0.1
_ENDED = ("ended before it could freeze", "see 'spoolscope info'")

EPILOG = """\b
Examples:
  sudo spoolscope record --spool /var/mail --last 5m -o box
  sudo spoolscope freeze box
  sudo spoolscope freeze /var/lib/spoolscope/rollups
"""


@click.command(epilog=EPILOG)
@click.argument("recording", type=click.Path(path_type=Path))
@json_option
def command(recording: Path, *, as_json: bool) -> None:
    """Keep the last window of a flight recorder as a trace.

    RECORDING is the -o of 'spoolscope record --last', with or without
    --rollup. The recorder goes on; this returns when the trace is whole.
    """
    opened = _opened(recording)
    pid = _flight_recorder(opened)
    with _Window(opened) as window:
        os.kill(pid, signal.SIGUSR1)
        while (trace := window.trace()) is None:
            time.sleep(POLL_S)
    if as_json:
        emit_json({"trace": trace})
    else:
        wrote(trace, f"spoolscope explain {quote(str(trace))}")


class _Window:
    """The first window that the recorder freezes from now on; it may freeze others just now.

    Args:
        recording: The recording, whose recorder runs.
    """

    def __init__(self, recording: Recording) -> None:
        self._path = recording.path
        self._before = set(recording.traces())
        # It holds the segment that is the newest now: a window that is frozen already does not.
        self._least = max(map(segment_number, recording.pending()), default=0)
        self._numbers: list[int] = []
        try:
            self._said = (recording.path / CAPTURES / ANSWERS).open("rb")
        except OSError as error:
            raise _refused(recording, *_ENDED) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._said.close()

    def trace(self) -> Path | None:
        """Return its trace once that is whole; until then None.

        Raises:
            SpoolscopeError: there will be none.
        """
        recording = Recording.open(self._path)
        is_over = recording.recorder() is None and not in_use(recording.path / CAPTURES)
        self._numbers = self._numbers or self._frozen()
        left = set(map(segment_number, recording.pending())).intersection(self._numbers)
        new = sorted(set(recording.traces()) - self._before)
        if self._numbers:
            for trace in new:
                with suppress(FileNotFoundError):  # --keep removes it meanwhile
                    if read_meta(trace)["segment"] == self._numbers[0]:
                        return trace
            self._refuse_failed(recording)
            if not left:
                raise _refused(recording, "has dropped this window", "give it a larger --keep")
        elif is_over and new:  # the recorder died: this is what it had
            return new[-1]
        if is_over:
            raise _refused(recording, *_ENDED)
        return None

    def _refuse_failed(self, recording: Recording) -> None:
        for failed in recording.failures:
            if failed["segments"] == self._numbers:
                raise SpoolscopeError(
                    failed["failure"], remedy="it is tried once more when the recording ends"
                )

    def _frozen(self) -> list[int]:
        """Return the numbers of its segments as soon as the recorder has said them, else none."""
        self._said.seek(0)
        for line in self._said.read().rpartition(b"\n")[0].splitlines():
            event = json.loads(line) if line.startswith(b'{"') else {}
            if event.get("event") == "frozen" and max(event["numbers"], default=0) >= self._least:
                return list(map(int, event["numbers"]))
        return []


def _opened(place: Path) -> Recording:
    """Return the recording in a directory, or that behind the roll-ups in it.

    Raises:
        SpoolscopeError: there is none.
    """
    if Recording.is_one(place):
        return Recording.open(place)
    behind = [Recording.open(one) for one in windows_of(place) if Recording.is_one(one)]
    if not behind and (place / partition(MARKER, VERSION)).is_dir():
        raise SpoolscopeError(
            f"{place} has roll-ups, but no flight recorder of this host",
            remedy="record with --rollup --last 5m",
            exit_code=USAGE,
        )
    if not behind:
        return Recording.open(place)
    # Two of them run only while one takes over from the other, which freezes its own at its end.
    return max(behind, key=lambda one: (one.recorder() is not None, one.path.name))


def _flight_recorder(recording: Recording) -> int:
    """Return the pid of the recorder that may be frozen."""
    if recording.control["kind"] != FROZEN:
        raise _refused(recording, "is no flight recorder", "record with --last 5m")
    pid = recording.recorder()
    if pid is None:
        raise _refused(recording, "has no running recorder", "start 'spoolscope record --last 5m'")
    return pid


def _refused(recording: Recording, what: str, remedy: str) -> SpoolscopeError:
    return SpoolscopeError(f"{recording.path} {what}", remedy=remedy)
