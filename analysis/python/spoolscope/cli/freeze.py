"""The verb freeze."""

import os
import signal
import time
from pathlib import Path

import click

from spoolscope.cli.output import emit_json, json_option, wrote
from spoolscope.traces.errors import SpoolscopeError
from spoolscope.traces.recording import FROZEN, Recording

POLL_S = 0.1

EPILOG = """\b
Examples:
  sudo spoolscope record --spool /var/mail --last 5m -o box
  sudo spoolscope freeze box
"""


@click.command(epilog=EPILOG)
@click.argument("recording", type=click.Path(path_type=Path))
@json_option
def command(recording: Path, *, as_json: bool) -> None:
    """Keep the last window of a flight recorder as a trace.

    RECORDING is the -o of 'spoolscope record --last'. The recorder goes on;
    this returns when the trace is whole.
    """
    opened = Recording.open(recording)
    before = set(opened.traces())
    os.kill(_flight_recorder(opened), signal.SIGUSR1)
    while not (new := sorted(set(opened.traces()) - before)):
        # When the recorder has ended, its last window may still be converted.
        if opened.recorder() is None and not opened.pending():
            raise _refused(opened, "ended before it could freeze", "see 'spoolscope info'")
        time.sleep(POLL_S)
    if as_json:
        emit_json({"trace": new[0]})
    else:
        wrote(new[0], f"spoolscope explain {new[0]}")


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
