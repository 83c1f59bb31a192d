"""Record roll-ups: run spoolscope-record for good, and write its sums minute by minute."""

import json
import os
import platform
import re
import shutil
import signal
import socket
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from spoolscope.tracers.handover import agree, begun, forget_dead, is_over, starting, window
from spoolscope.tracers.recorder import Event, Recorder
from spoolscope.tracers.request import Request
from spoolscope.tracers.session import Seen, hiding_of, record, refuse_output_on_spool, watched
from spoolscope.tracers.summed import About, Names, Summed
from spoolscope.traces import unfinished
from spoolscope.traces.errors import SpoolscopeError
from spoolscope.traces.files import write_file
from spoolscope.traces.output import discard, place_of
from spoolscope.traces.phases import Progress, unseen
from spoolscope.traces.private import Hiding
from spoolscope.traces.recording import CAPTURES, CONTROL, FROZEN
from spoolscope.traces.rollups.files import is_written, write
from spoolscope.traces.rollups.names import HOST_NOTE, WINDOWS
from spoolscope.traces.version import version

MINUTE_S = 60
RING_MIB = 4
"""Kernel memory for records not yet read; sums need few."""

WORK = ".minutes-"
_DAMAGED = "damaged-"
"""Beginning of the names that files get which cannot be read; no later start looks at them."""
_HOST = re.compile(r"[^A-Za-z0-9._-]+")


@dataclass
class RolledUp:
    """The result of a recording of roll-ups.

    Attributes:
        directory: The directory of the roll-ups.
        recorder_id: Identity of this run.
        minutes: Minutes that were written.
        calls: Calls in them.
        lost: Calls that are in none, as a table of the kernel was full.
        recorder_ns: CPU time of the recorder, that in the kernel included.
        covered_ns: Time that they cover.
        windows: Directory of the flight recorder's traces; None without one.
        command_status: Exit status of the command as a shell gives it, or None.
        failure: Why the recorder ended early, or None.
        unmounted: Mount points of spools that were unmounted during the recording.
        handed_over: Another recorder has taken over, and this one has ended for it.
    """

    directory: Path
    recorder_id: str
    minutes: int = 0
    calls: int = 0
    lost: int = 0
    recorder_ns: int = 0
    covered_ns: int = 0
    windows: Path | None = None
    command_status: int | None = None
    failure: str | None = None
    unmounted: tuple[str, ...] = ()
    handed_over: bool = False


@dataclass
class _Writer:
    """Makes tables of the files that the native recorder writes into ``work``.

    ``started`` is called once another recorder can find this one.
    """

    work: Path
    root: Path
    about: About
    names: Names
    done: RolledUp
    period_s: float
    predecessor: Path | None = None
    started: Callable[[], None] = lambda: None
    each: Callable[[], None] = lambda: None
    spent_ns: int = field(default_factory=time.process_time_ns)

    def begin(self) -> None:
        """Note what the tables need, for a later command in case that this one is killed."""
        write_file(self.work / unfinished.ABOUT, json.dumps(asdict(self.about)), private=True)
        self.started()

    def on(self, event: Event) -> None:
        """Handle an event of the recorder."""
        if event["event"] == "begun" and self.predecessor is not None:
            agree(self.work, self.predecessor, time.time(), self.period_s)
        if event["event"] == "minute":
            forget_dead(self.work)
            file = self.work / event["file"]
            minute_s = self.flush(Summed.read(file))
            file.unlink()
            self.each()
            if not self.done.handed_over and is_over(self.work, minute_s, self.period_s):
                self.done.handed_over = True
                os.kill(os.getpid(), signal.SIGINT)  # ends the recording in order

    def flush(self, summed: Summed, *, left: bool = False) -> int:
        """Write the tables of a minute, unless another recorder has it.

        Return the minute, in seconds since the epoch.

        Args:
            summed: Its sums.
            left: It is of a recorder that was killed, perhaps after it had written the tables.
        """
        minute_s = int(summed.content["minute_s"])
        first_s, end_s = window(self.work)
        if first_s <= minute_s < end_s and not (left and self._is_written(summed, minute_s)):
            before_ns, self.spent_ns = self.spent_ns, time.process_time_ns()
            self._add(summed, 0 if left else self.spent_ns - before_ns)
        if minute_s >= first_s:
            begun(self.work)
        return minute_s

    def _is_written(self, summed: Summed, minute_s: int) -> bool:
        """Return True if the tables are there: made once more, they would be others.

        The version, names and times of a killed recorder need not be those of this one.
        """
        about, seq = self.about, int(summed.content["seq"])
        return is_written(self.root, about.host, about.recorder_id, seq, minute_s)

    def _add(self, summed: Summed, more_ns: int) -> None:
        tables = summed.tables(self.about, self.names, more_ns)
        write(self.root, self.about.host, tables)
        minutes = tables["minutes"]
        self.done.minutes += 1
        self.done.covered_ns += int(minutes["covered_ns"][0])
        for name in ("calls", "lost", "recorder_ns"):
            setattr(self.done, name, getattr(self.done, name) + int(minutes[name].sum()))

    def rest(self) -> tuple[int, int]:
        """Write what a killed recorder left.

        Return the number of minutes, and that of files that cannot be read and are set aside.
        """
        left, damaged = sorted(self.work.glob(unfinished.MINUTES)), 0
        for file in left:
            try:
                summed = Summed.read(file)
            except SpoolscopeError:
                _set_aside(file)
                damaged += 1
            else:
                self.flush(summed, left=True)
                file.unlink()
        return len(left) - damaged, damaged


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
        writer = _Writer(
            work, root, about, Names(hiding), done, period_s, predecessor, started, each
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


def _record_sums(request: Request, writer: _Writer, progress: Progress) -> None:
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
        done.failure = f"{error.message}: {error.remedy}"
    done.unmounted = tuple(seen.unmounted)
    discard(writer.work)


def _record_both(
    request: Request,
    writer: _Writer,
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

    summary = record(request, progress, tell, kept, heard=heard)
    writer.done.command_status, writer.done.failure = summary.command_status, summary.failure
    writer.done.unmounted = summary.unmounted


def _keep_newest(root: Path, host: str, keep: int) -> None:
    """Remove the oldest traces of all flight recorders of a host, and directories without any."""
    places = [note.parent for note in root.glob(f"{WINDOWS}*/{HOST_NOTE}") if _noted(note) == host]
    traces = [trace for place in sorted(places) for trace in sorted(place.glob(f"{FROZEN}-*"))]
    for trace in traces[:-keep]:
        with suppress(FileNotFoundError):  # the recorder that made it removes it, too
            shutil.rmtree(trace)
    for place in places:
        with suppress(FileNotFoundError):
            if {path.name for path in place.iterdir()} == {CONTROL, HOST_NOTE}:
                shutil.rmtree(place)


def _write_left(root: Path, hiding: Hiding | None, tell: Callable[[str], None]) -> None:
    """Write the minutes that a killed recorder left behind, and say that its last one is lost."""
    for work in sorted(_works(root)):
        note = work / unfinished.ABOUT
        if unfinished.in_use(work) or not note.is_file():
            continue
        about = _about_left(note)
        apart = work.name.startswith(WORK)  # not beside the segments of a flight recorder
        if about is None:
            aside = _set_aside(work if apart else note)
            tell(f"in {work} left notes that are damaged: {aside} has what is left; remove it")
            continue
        since = datetime.fromtimestamp(note.stat().st_mtime, UTC)
        done = RolledUp(root, about.recorder_id)
        left, damaged = _Writer(work, root, about, Names(hiding), done, MINUTE_S).rest()
        tell(
            f"that began at {since:%Y-%m-%d %H:%M:%S} UTC did not end in order: {left} minutes "
            "that it left were added, its last one is lost"
        )
        if not apart:
            note.unlink()
        elif not damaged:
            shutil.rmtree(work)
        if damaged:
            kept = _set_aside(work) if apart else work
            tell(f"left {damaged} minutes that are damaged, and lost: remove {kept}/{_DAMAGED}*")


def _about_left(note: Path) -> About | None:
    """Return what a killed recorder noted; None if a note of it is damaged."""
    try:
        window(note.parent)
        return About(**json.loads(note.read_bytes()))
    except (OSError, ValueError, TypeError, SpoolscopeError):
        return None


def _set_aside(place: Path) -> Path:
    """Rename what cannot be read, so that no later start stumbles over it; return its new path."""
    dot = "." * place.name.startswith(".")
    return place.rename(place.with_name(f"{dot}{_DAMAGED}{place.name.removeprefix('.')}"))


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
