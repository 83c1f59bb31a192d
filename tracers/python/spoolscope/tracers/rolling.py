"""Record roll-ups: run spoolscope-record for good, and write its sums minute by minute."""

import json
import os
import platform
import re
import shutil
import socket
import uuid
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from spoolscope.tracers.handover import starting, window
from spoolscope.tracers.minute_writer import DAMAGED, RolledUp, Writer, set_aside
from spoolscope.tracers.recorder import Event, Recorder
from spoolscope.tracers.request import Request
from spoolscope.tracers.session import Seen, hiding_of, record, refuse_output_on_spool, watched
from spoolscope.tracers.summed import About, Names
from spoolscope.traces import unfinished
from spoolscope.traces.errors import SpoolscopeError
from spoolscope.traces.files import write_file
from spoolscope.traces.output import discard, place_of
from spoolscope.traces.phases import Progress, unseen
from spoolscope.traces.private import Hiding
from spoolscope.traces.recording import ANSWERS, CAPTURES, CONTROL, DISK_FULL, FROZEN
from spoolscope.traces.rollups.names import HOST_NOTE, WINDOWS
from spoolscope.traces.version import version

__all__ = ["RolledUp", "own_host", "record_rollups", "windows_of"]

MINUTE_S = 60
RING_MIB = 4
"""Kernel memory for records not yet read; sums need few."""

WORK = ".minutes-"
_HOST = re.compile(r"[^A-Za-z0-9._-]+")
_LOST_MINUTE = "; the minute that it was in is lost"


def record_rollups(
    request: Request,
    progress: Progress = unseen,
    tell: Callable[[str], None] = lambda _what: None,
    made: Callable[[Path], None] = lambda _trace: None,
    *,
    each: Callable[[], None] = lambda: None,
    take_over: bool = False,
) -> RolledUp:
    """Record sums of calls into a directory of roll-ups, which may exist; Ctrl-C ends it in order.

    With a flight recorder (``request.last``) its traces are in ``windows-TIME`` there.

    Args:
        request: The parameters; ``output`` is the directory.
        progress: Called with the phase.
        tell: Called with messages that are urgent for an operator.
        made: Called with each frozen trace.
        each: Called after each minute.
        take_over: Begin beside the recorder that writes there, and end it at the border of a
            minute; if none does, just begin.

    Raises:
        SpoolscopeError: wrong target, missing rights, another recorder writes there, or the
            recorder failed before any minute.
    """
    hiding = hiding_of(request)
    root = place_of(request.output)
    refuse_output_on_spool(request.output, request.spools)
    root.mkdir(mode=0o700, exist_ok=True)
    with starting(root) as started:
        _write_left(root, hiding, tell)
        about = _about()
        predecessor = _predecessor(root, about.host, take_over=take_over)
        period_s = request.rollup_s or MINUTE_S
        request = replace(request, rollup_s=period_s)
        done = RolledUp(root, about.recorder_id)
        if request.last:
            done.windows = root / f"{WINDOWS}{datetime.now(UTC):%Y%m%dT%H%M%SZ}"
            work = done.windows / CAPTURES
        else:
            work = root / f"{WORK}{about.recorder_id}"
        known, has_command = Names(hiding), bool(request.command)
        writer = Writer(
            work, root, about, known, done, period_s, predecessor, started, each, tell, has_command
        )
        if done.windows:
            _record_both(replace(request, output=done.windows), writer, progress, tell, made)
        else:
            _record_sums(request, writer, progress)
    return done


def _predecessor(root: Path, host: str, *, take_over: bool) -> Path | None:
    """Return the working directory of the recorder to take over from, if any.

    Raises:
        SpoolscopeError: there is one, but it is not to be replaced.
    """
    predecessor = _running(root, host)
    if predecessor is not None and not take_over:
        raise SpoolscopeError(
            f"a recorder of this host writes to {root} already",
            remedy="replace it with --take-over, or name another directory with -o",
        )
    return predecessor


def _record_sums(request: Request, writer: Writer, progress: Progress) -> None:
    """Record sums alone, in a working directory of its own."""
    writer.work.mkdir(mode=0o700)
    unfinished.begin(writer.work, "minutes", writer.root)
    writer.begin()
    seen, done = Seen(), writer.done
    alone = replace(request, snapshot="none", sample_hz=0, ring_mib=request.ring_mib or RING_MIB)
    recorder = Recorder(alone, writer.work / "capture.seg")
    try:
        for event in watched(recorder, request.duration_s, progress, seen):
            if event is not None:
                writer.on(event)
        done.command_status = recorder.end()
    except SpoolscopeError as error:
        writer.rest()
        if not done.minutes:
            discard(writer.work)
            raise
        done.failure = f"{error.message}: {error.remedy}{_LOST_MINUTE}"
    discard(writer.work)


def _record_both(
    request: Request,
    writer: Writer,
    progress: Progress,
    tell: Callable[[str], None],
    made: Callable[[Path], None],
) -> None:
    """Record sums, and calls for a flight recorder; ``request.output`` is the place of these."""
    host = writer.about.host

    def heard(event: Event) -> None:
        if event["event"] == "begun":
            write_file(request.output / HOST_NOTE, json.dumps(host), private=True)
            writer.begin()
        writer.on(event)

    def kept(trace: Path) -> None:
        made(trace)
        if request.keep:
            _keep_newest(writer.root, host, request.keep)

    summary, done = record(request, progress, tell, kept, heard=heard), writer.done
    done.command_status = summary.command_status
    if summary.failure:
        done.failure = f"{summary.failure}{_LOST_MINUTE}"
    elif summary.meta.get("ended") == DISK_FULL:
        done.failure = "the disk of its windows was full: make room, or give a smaller --last"


def windows_of(root: Path, host: str | None = None) -> list[Path]:
    """Return the places of all flight recorders of a host, this one if none is given."""
    host = host or own_host()
    notes = sorted(root.glob(f"{WINDOWS}*/{HOST_NOTE}"))
    return [note.parent for note in notes if _noted(note) == host]


def _keep_newest(root: Path, host: str, keep: int) -> None:
    """Remove the oldest traces of all flight recorders of a host, and directories without any."""
    places = windows_of(root, host)
    traces = [trace for place in places for trace in sorted(place.glob(f"{FROZEN}-*"))]
    for trace in traces[:-keep]:
        with suppress(FileNotFoundError):  # the recorder that made it removes it, too
            shutil.rmtree(trace)
    for place in places:
        with suppress(FileNotFoundError):
            if {path.name for path in place.iterdir()} == {CONTROL, HOST_NOTE}:
                shutil.rmtree(place)


def _write_left(root: Path, hiding: Hiding | None, tell: Callable[[str], None]) -> None:
    """Write the minutes that a killed recorder left behind, and say if its last one is lost."""
    for work in sorted(_works(root)):
        note = work / unfinished.ABOUT
        if unfinished.in_use(work) or not note.is_file():
            continue
        about = _about_left(note)
        apart = work.name.startswith(WORK)  # not beside the segments of a flight recorder
        if about is None:
            aside = set_aside(work if apart else note)
            tell(f"in {work} left notes that are damaged: {aside} has what is left; remove it")
            continue
        since = datetime.fromtimestamp(note.stat().st_mtime, UTC)
        done = RolledUp(root, about.recorder_id)
        lost = "" if _is_whole(work) else ", its last one is lost"
        left, damaged = Writer(work, root, about, Names(hiding), done, MINUTE_S).rest()
        added = "1 minute that it left was" if left == 1 else f"{left} minutes that it left were"
        tell(
            f"that began at {since:%Y-%m-%d %H:%M:%S} UTC did not end in order: {added} added{lost}"
        )
        if not apart:
            note.unlink()
        elif not damaged:
            shutil.rmtree(work)
        if damaged:
            kept = set_aside(work) if apart else work
            tell(f"left {damaged} minutes that are damaged, and lost: remove {kept}/{DAMAGED}*")


def _is_whole(work: Path) -> bool:
    """Return True if the native recorder ended in order, when only its front end was killed."""
    with suppress(FileNotFoundError, ValueError):
        said = (work / ANSWERS).read_bytes().rpartition(b"\n")[0].splitlines()
        return any(json.loads(line).get("event") == "done" for line in said if line[:2] == b'{"')
    return False


def _about_left(note: Path) -> About | None:
    """Return what a killed recorder noted; None if a note of it is damaged."""
    try:
        window(note.parent)
        return About(**json.loads(note.read_bytes()))
    except (OSError, ValueError, TypeError, SpoolscopeError):
        return None


def _works(root: Path) -> list[Path]:
    """Return all directories in which recorders work or worked."""
    return [*root.glob(f"{WORK}*"), *root.glob(f"{WINDOWS}*/{CAPTURES}")]


def _running(root: Path, host: str) -> Path | None:
    """Return the working directory of the recorder of this host that writes there now, if any.

    Raises:
        SpoolscopeError: there are several.
    """
    found = [
        work
        for work in _works(root)
        if unfinished.in_use(work) and _host_of(work / unfinished.ABOUT) == host
    ]
    if len(found) > 1:
        raise SpoolscopeError(
            f"{len(found)} recorders write to {root}", remedy="end all but one of them"
        )
    return found[0] if found else None


def _host_of(note: Path) -> str | None:
    found = _noted(note)
    return None if found is None else str(found["host"])


def _noted(note: Path) -> Any:
    """Return the content of a note; None if it is gone or, after a loss of power, damaged."""
    with suppress(FileNotFoundError, ValueError):
        return json.loads(note.read_bytes())
    return None


def own_host() -> str:
    """Return the name of this host as roll-ups have it."""
    return _HOST.sub("-", socket.gethostname()).strip("-._") or "localhost"


def _about() -> About:
    return About(
        host=own_host(),
        boot_id=Path("/proc/sys/kernel/random/boot_id").read_text().strip(),
        recorder_id=uuid.uuid4().hex,
        kernel=platform.release(),
        tool=version(),
        cpus=os.cpu_count() or 0,
    )
