"""Record: run spoolscope-record, watch it, convert its capture."""

import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from spoolscope.tracers.blktrace.capture import block_tracing, remove_block_events
from spoolscope.tracers.convert import convert
from spoolscope.tracers.recorder import Event, Recorder
from spoolscope.tracers.request import Request
from spoolscope.tracers.series import Series
from spoolscope.traces.errors import USAGE, SpoolscopeError
from spoolscope.traces.flat import DTYPES
from spoolscope.traces.mounts import mounts
from spoolscope.traces.output import check_output, discard, publish, work_directory
from spoolscope.traces.phases import Progress, unseen
from spoolscope.traces.private import Hiding
from spoolscope.traces.recording import Recording

CAPTURE = "capture.seg"
__all__ = ["Request", "Summary", "record", "recover", "refuse_output_on_spool"]


@dataclass(frozen=True)
class Summary:
    """The result of a recording.

    Attributes:
        trace: The trace directory.
        command_status: Exit status of the command as a shell gives it, or None.
        meta: The trace's meta.json.
        failure: Why the recorder ended early, or None; the trace holds the records before that.
        unmounted: Mount points of spools that were unmounted during the recording.
        ready: The snapshot was taken, and a command began, before the recording was to end.
        signalled: A termination signal came during the recording, perhaps after the command ended.
    """

    trace: Path
    command_status: int | None
    meta: dict[str, Any]
    failure: str | None = None
    unmounted: tuple[str, ...] = ()
    ready: bool = True
    signalled: bool = False


def record(
    request: Request,
    progress: Progress = unseen,
    tell: Callable[[str], None] = lambda _what: None,
    made: Callable[[Path], None] = lambda _trace: None,
    over: Callable[[], bool] = lambda: False,
    heard: Callable[[Event], None] = lambda _event: None,
) -> Summary:
    """Record into a new trace directory.

    Ctrl-C ends the recording in order; the trace is whole. The directory appears under its
    final name only when it is complete.

    Args:
        request: The parameters.
        progress: Called with the phase and the share of the work that is done.
        tell: If in several traces: called with messages that are urgent for an operator.
        made: If in several traces: called with each trace that is complete.
        over: If in one trace: called about ten times a second once the snapshot is taken; the
            recording ends when it returns true.
        heard: If in several traces: called with each event of the native recorder.

    Raises:
        SpoolscopeError: wrong target, missing rights, or the recorder failed.
    """
    hiding = hiding_of(request)
    check_output(request.output)
    refuse_output_on_spool(request.output, request.spools)
    if request.is_series:
        return _record_series(Series(request, hiding, tell, made), progress, heard)
    work = work_directory(request.output, "recording")
    status, failure, seen, signalled = None, None, Seen(), False
    blocks = block_tracing(request.spools, work) if request.blktrace else nullcontext()
    try:
        with blocks:
            recorder = Recorder(request, work / CAPTURE)
            ending = False
            for _ in watched(recorder, request.duration_s, progress, seen):
                if seen.ready and not ending and (ending := over()):
                    recorder.stop()
            signalled = recorder.signalled
            status = recorder.end()
    except SpoolscopeError as error:
        if not _worth_keeping(work / CAPTURE):
            discard(work)
            raise
        failure = f"{error.message}: {error.remedy}"
    meta = _finish([work / CAPTURE], work, request.output, hiding, progress)
    unmounted = tuple(seen.unmounted)
    return Summary(request.output, status, meta, failure, unmounted, seen.ready, signalled)


def hiding_of(request: Request) -> Hiding | None:
    """Return how the names of a recording are hidden; None: they are kept."""
    if request.keep_names:
        return None
    hiding = Hiding.by_key_file(
        request.key_file, outside=request.output, programs=request.hide_programs
    )
    return hiding if request.keep_book else replace(hiding, book=None)


def _record_series(series: Series, report: Progress, heard: Callable[[Event], None]) -> Summary:
    """Record into a directory of traces, which exists from the beginning."""
    request = series.request
    status, failure, seen = None, None, Seen()
    try:
        recorder = Recorder(request, series.capture)
        series.follow(recorder)
        for event in watched(recorder, request.duration_s, report, seen):
            if event is not None:
                series.on(event)
                heard(event)
            series.work()
        series.follow(recorder, ended=True)
        status = recorder.end()
    except SpoolscopeError as error:
        if not any(series.captures.glob("*.seg")):
            series.close()
            shutil.rmtree(request.output)
            raise
        failure = f"{error.message}: {error.remedy}"
    report("converting what is left", None)
    series.end()
    if series.failures:
        raise SpoolscopeError(
            series.failures[0],
            remedy=f"make room, then 'spoolscope record --recover {request.output} -o NEW'",
        )
    made = Recording.open(request.output)
    totals = made.totals([meta for _, meta in made.described()])
    return Summary(request.output, status, totals, failure, tuple(seen.unmounted), seen.ready)


def recover(
    capture: Path, output: Path, hiding: Hiding | None, progress: Progress = unseen
) -> Summary:
    """Convert a capture that an interrupted recording left behind.

    Args:
        capture: The capture file, or the directory that holds it; it is kept.
        output: Trace directory to write.
        hiding: How names are hidden, or None to keep them.
        progress: Called with the phase and the share of the work that is done.
    """
    files = _left(capture)
    if not files:
        raise SpoolscopeError(
            f"no capture at {capture}",
            remedy=f"give the directory that holds {CAPTURE}, such as .NAME.xxxx",
            exit_code=USAGE,
        )
    check_output(output)
    meta = _finish(files, work_directory(output), output, hiding, progress)
    return Summary(output, None, meta)


def _left(place: Path) -> list[Path]:
    """Return the segments of an interrupted recording, oldest first."""
    if place.is_file():
        return [place]
    if Recording.is_one(place):
        recording = Recording.open(place)
        if pid := recording.recorder():
            raise SpoolscopeError(
                f"{place} is still being recorded by process {pid}",
                remedy="end it first, or use 'spoolscope freeze'",
                exit_code=USAGE,
            )
        return recording.pending()
    return sorted(file for file in place.glob("capture*.seg") if file.is_file())


def _worth_keeping(capture: Path) -> bool:
    return capture.exists() and capture.stat().st_size > DTYPES["file_header"].itemsize


def _finish(
    captures: list[Path], work: Path, output: Path, hiding: Hiding | None, progress: Progress
) -> dict[str, Any]:
    """Convert in a work directory, then rename it to the output; on failure keep the capture."""
    try:
        meta = convert(captures, work, hiding, progress=progress)
    except OSError as error:
        raise SpoolscopeError(
            f"cannot write the trace: {error.strerror}",
            remedy=f"make room, then 'spoolscope record --recover {captures[0].parent} "
            f"-o {output}'",
        ) from error
    for capture in captures:
        if capture.parent == work:
            capture.unlink()
    remove_block_events(work)
    publish(work, output)
    return meta


def refuse_output_on_spool(output: Path, spools: list[Path]) -> None:
    """Refuse an output on a spool before anything, even a temporary directory, is created there."""
    device, place = _place_of(output.resolve().parent)
    for spool in spools:
        of_spool, top = _place_of(spool.resolve())
        if of_spool == device and place.is_relative_to(top):
            raise SpoolscopeError(
                f"{output} lies on the spool itself",
                remedy="choose another -o; for top, set TMPDIR to a directory elsewhere",
            )


def _place_of(path: Path) -> tuple[str, Path]:
    """Return major:minor of the filesystem of a path, and the path from the filesystem's root."""
    by_place = {mount.place: mount for mount in mounts()}  # the last one at a place is visible
    holder = next((by_place[place] for place in (path, *path.parents) if place in by_place), None)
    if holder is None:  # in a chroot, whose root is not a mount point
        return "", path
    return holder.device, holder.root / path.relative_to(holder.place)


@dataclass
class Seen:
    """Facts from the recorder's events; see ``Summary``."""

    unmounted: list[str] = field(default_factory=list)
    ready: bool = False


def watched(
    recorder: Recorder, duration_s: float | None, report: Progress, seen: Seen
) -> Iterator[Event | None]:
    """Yield the recorder's events, and report its progress."""
    begun_at: float | None = None
    phase = "attaching"
    report(phase, None)
    for event in recorder.events():
        kind = event["event"] if event is not None else None
        if kind == "begun":
            begun_at, phase = time.monotonic(), "taking the snapshot"
        elif kind == "ready":
            phase, seen.ready = "recording", True
        elif event is not None and kind == "unmounted":
            seen.unmounted.append(event["spool"])
            phase += f" ({event['spool']} was unmounted)"
        if begun_at is not None:
            spent = time.monotonic() - begun_at
            report(phase, min(spent / duration_s, 1.0) if duration_s else None)
        yield event
