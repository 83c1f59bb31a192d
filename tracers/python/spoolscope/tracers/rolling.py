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

from spoolscope.tracers.handover import agree, is_over, window
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
from spoolscope.traces.recording import CAPTURES
from spoolscope.traces.rollups.files import write
from spoolscope.traces.version import version

MINUTE_S = 60
RING_MIB = 4
"""Kernel memory for records not yet read; sums need few."""

WORK = ".minutes-"
WINDOWS = "windows-"
"""Beginning of the names of the flight recorder's directories, one for each start."""

_ABOUT = "about.json"
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
    """Makes tables of the files that the native recorder writes into ``work``."""

    work: Path
    root: Path
    about: About
    names: Names
    done: RolledUp
    period_s: float
    predecessor: Path | None = None
    each: Callable[[], None] = lambda: None
    spent_ns: int = field(default_factory=time.process_time_ns)

    def begin(self) -> None:
        """Note what the tables need, for a later command in case that this one is killed."""
        write_file(self.work / _ABOUT, json.dumps(asdict(self.about)), private=True)

    def on(self, event: Event) -> None:
        """Handle an event of the recorder."""
        if event["event"] == "begun" and self.predecessor is not None:
            agree(self.work, self.predecessor, time.time(), self.period_s)
        if event["event"] == "minute":
            minute_s = self.flush(self.work / event["file"])
            self.each()
            if not self.done.handed_over and is_over(self.work, minute_s, self.period_s):
                self.done.handed_over = True
                os.kill(os.getpid(), signal.SIGINT)  # ends the recording in order

    def flush(self, file: Path) -> int:
        """Write the tables of one file, unless another recorder has its minute, and remove it.

        Return its minute, in seconds since the epoch.
        """
        summed = Summed.read(file)
        minute_s = int(summed.content["minute_s"])
        first_s, end_s = window(self.work)
        if first_s <= minute_s < end_s:
            self._add(summed)
        file.unlink()
        return minute_s

    def _add(self, summed: Summed) -> None:
        before_ns, self.spent_ns = self.spent_ns, time.process_time_ns()
        tables = summed.tables(self.about, self.names, self.spent_ns - before_ns)
        write(self.root, self.about.host, tables)
        minutes = tables["minutes"]
        self.done.minutes += 1
        self.done.covered_ns += int(minutes["covered_ns"][0])
        for name in ("calls", "lost", "recorder_ns"):
            setattr(self.done, name, getattr(self.done, name) + int(minutes[name].sum()))

    def rest(self) -> int:
        """Write what a killed recorder left; return the number of files."""
        left = sorted(self.work.glob("minute-*.json"))
        for file in left:
            self.flush(file)
        return len(left)


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
    _write_left(root, hiding, tell)
    about = _about()
    predecessor = _running(root, about.host)
    if predecessor is not None and not take_over:
        raise SpoolscopeError(
            f"a recorder of this host writes to {root} already",
            remedy="replace it with --take-over, or name another directory with -o",
        )
    period_s = request.rollup_s or MINUTE_S
    done = RolledUp(root, about.recorder_id)
    if request.last:
        done.windows = root / f"{WINDOWS}{datetime.now(UTC):%Y%m%dT%H%M%SZ}"
        work = done.windows / CAPTURES
        writer = _Writer(work, root, about, Names(hiding), done, period_s, predecessor, each)
        inner = replace(request, output=done.windows, rollup_s=period_s)
        _record_both(inner, writer, progress, tell, made)
        return done
    work = root / f"{WORK}{about.recorder_id}"
    work.mkdir(mode=0o700)
    unfinished.begin(work, "output", root)
    writer = _Writer(work, root, about, Names(hiding), done, period_s, predecessor, each)
    alone = replace(
        request,
        rollup_s=period_s,
        snapshot="none",
        sample_hz=0,
        ring_mib=request.ring_mib or RING_MIB,
    )
    _record_sums(alone, writer, progress)
    discard(work)
    return done


def _record_sums(request: Request, writer: _Writer, progress: Progress) -> None:
    writer.begin()
    seen, done = Seen(), writer.done
    recorder = Recorder(request, writer.work / "capture.seg")
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


def _record_both(
    request: Request,
    writer: _Writer,
    progress: Progress,
    tell: Callable[[str], None],
    made: Callable[[Path], None],
) -> None:
    def heard(event: Event) -> None:
        if event["event"] == "begun":
            writer.begin()
        writer.on(event)

    summary = record(request, progress, tell, made, heard=heard)
    writer.done.command_status, writer.done.failure = summary.command_status, summary.failure
    writer.done.unmounted = summary.unmounted


def _write_left(root: Path, hiding: Hiding | None, tell: Callable[[str], None]) -> None:
    """Write the minutes that a killed recorder left behind, and say that its last one is lost."""
    places = [*root.glob(f"{WORK}*"), *root.glob(f"{WINDOWS}*/{CAPTURES}")]
    for work in sorted(places):
        note = work / _ABOUT
        if unfinished.in_use(work) or not note.is_file():
            continue
        about = About(**json.loads(note.read_text()))
        since = datetime.fromtimestamp(note.stat().st_mtime, UTC)
        done = RolledUp(root, about.recorder_id)
        left = _Writer(work, root, about, Names(hiding), done, MINUTE_S).rest()
        tell(
            f"that began at {since:%Y-%m-%d %H:%M:%S} UTC did not end in order: {left} minutes "
            "that it left were added, its last one is lost"
        )
        if work.name.startswith(WORK):
            shutil.rmtree(work)
            unfinished.end(work)
        else:
            note.unlink()


def _running(root: Path, host: str) -> Path | None:
    """Return the working directory of the recorder of this host that writes there now, if any.

    Raises:
        SpoolscopeError: there are several.
    """
    notes = [*root.glob(f"{WORK}*/{_ABOUT}"), *root.glob(f"{WINDOWS}*/{CAPTURES}/{_ABOUT}")]
    found = [
        note.parent for note in notes if unfinished.in_use(note.parent) and _host_of(note) == host
    ]
    if len(found) > 1:
        raise SpoolscopeError(
            f"{len(found)} recorders write to {root}", remedy="end all but one of them"
        )
    return found[0] if found else None


def _host_of(note: Path) -> str | None:
    with suppress(FileNotFoundError):  # the recorder ends meanwhile
        return str(json.loads(note.read_text())["host"])
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
