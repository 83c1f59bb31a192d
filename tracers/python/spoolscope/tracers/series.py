"""A recording in several traces: segments are converted while it goes on."""

import contextlib
import multiprocessing
import os
import shutil
import signal
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from spoolscope.tracers.convert import convert
from spoolscope.tracers.hook import Hook
from spoolscope.tracers.recorder import Event, Recorder
from spoolscope.tracers.request import Request
from spoolscope.traces import unfinished
from spoolscope.traces.errors import SpoolscopeError
from spoolscope.traces.output import discard, place_of, publish, work_directory
from spoolscope.traces.private import Hiding
from spoolscope.traces.recording import (
    CAPTURES,
    DISK_FULL,
    FROZEN,
    ROTATED,
    Recording,
    started_at,
    write_control,
)

NICE = 10
"""Of conversions during a recording: lower gets nothing on a machine whose CPUs are all busy."""


@dataclass
class Job:
    """Segments that become one trace."""

    segments: list[Path]
    frozen: Event | None = None


@dataclass
class Series:
    """The output directory while it is filled.

    ``tell`` is called with messages that are urgent for an operator, ``made`` with each new trace.
    """

    request: Request
    hiding: Hiding | None
    tell: Callable[[str], None] = lambda _what: None
    made: Callable[[Path], None] = lambda _trace: None
    pending: deque[Job] = field(default_factory=deque)
    failures: list[str] = field(default_factory=list)
    skipped: int = 0
    number: int = 0
    early: str | None = None

    def __post_init__(self) -> None:
        """Make the directory; its name must be free."""
        self.path = place_of(self.request.output)
        self.kind = FROZEN if self.request.last else ROTATED
        self.path.mkdir(mode=0o700)
        self.captures = self.path / CAPTURES
        self.captures.mkdir(mode=0o700)
        unfinished.begin(self.captures, "series", self.path)
        self.capture = self.captures / "capture.seg"
        self._nice = NICE if self.request.yields else 0
        self._running: Conversion | None = None
        self._job: Job | None = None
        self._recorder: dict[str, Any] = {}
        self.hook = Hook(self.request.on_freeze, self.tell)

    def follow(self, recorder: Recorder, *, ended: bool = False) -> None:
        """Write the recorder's process to recording.json."""
        self._recorder = {
            "recorder_pid": recorder.pid,
            "recorder_started": None if ended else started_at(recorder.pid),
            "ended": ended,
        }
        self._write_control()

    def _write_control(self) -> None:
        control = {"kind": self.kind, **self._recorder, "early": self.early}
        control |= {"skipped": self.skipped, "hooks": self.hook.to_json()}
        write_control(self.path, control)

    def on(self, event: Event) -> None:
        """Handle an event of the recorder; queue its segments."""
        if event["event"] == "segment":
            self._add(Job([self._segment(event["number"])]))
        elif event["event"] == "frozen":
            segments = [self._segment(number) for number in event["numbers"]]
            self._add(Job(segments, event))
            if event["why"] != "end":
                self.tell(f"froze at {_now()}: {event['why']}")
        elif event["event"] == "done" and event["meta"].get("ended") == DISK_FULL:
            self.early = f"ended early at {_now()}: the disk of its output was full"
            self.tell(self.early)

    def _segment(self, number: int) -> Path:
        return self.captures / f"capture-{number:06}.seg"

    def _add(self, job: Job) -> None:
        """Queue a trace; drop the oldest if --keep would remove them at once."""
        self.pending.append(job)
        keep = self.request.keep
        while keep is not None and len(self.pending) > keep:
            self._drop(self.pending.popleft().segments)

    def _drop(self, segments: list[Path]) -> None:
        self.skipped += len(segments)
        for segment in segments:
            segment.unlink()

    def work(self) -> None:
        """Start the next queued conversion, if none is running."""
        if self.hook.step():
            self._write_control()
        if self._running is not None and self._running.goes_on:
            return
        self._finished()
        if self.pending:
            self._job = self.pending.popleft()
            self.number += 1
            output = self.path / f"{self.kind}-{self.number:06}"
            self._running = Conversion(self._job, output, self.hiding, self._nice)

    def _finished(self) -> None:
        if self._running is None:
            return
        failure = self._running.end()
        self._running = None
        if failure:
            self.failures.append(failure)
        else:
            made_now = self.path / f"{self.kind}-{self.number:06}"
            self.made(made_now)
            if self._job and self._job.frozen and self._job.frozen["why"] != "end":
                self.hook.add(made_now, str(self._job.frozen["why"]))
        made = sorted(self.path.glob(f"{self.kind}-*"))
        for old in made[: -self.request.keep] if self.request.keep else []:
            shutil.rmtree(old)

    def end(self) -> None:
        """Convert all segments that are left, also those that a killed recorder did not report.

        The recording is over and an operator waits: nothing is disturbed but by these.
        """
        jobs = list(self.pending)
        self._nice = 0
        if self._running is not None and self._job is not None:
            jobs.append(self._job)
            self._running.set_nice(0)
        self._finished()
        known = {segment for job in jobs for segment in job.segments}
        left = [s for s in Recording.open(self.path).pending() if s not in known]
        if left and self.request.last:
            self._add(Job(left, {"event": "frozen", "why": "the recorder died"}))
        else:
            for segment in left:
                self._add(Job([segment]))
        while self.pending:
            self.work()
            self._finished()
        self.hook.end()
        if self.request.on_freeze:
            self._write_control()
        if not self.failures:
            discard(self.captures)


def _now() -> str:
    return f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S} UTC"


class Conversion:
    """A process that makes one trace, so that its memory is freed.

    It is forked by one that has loaded the modules, which takes as long as a small trace.
    """

    def __init__(self, job: Job, output: Path, hiding: Hiding | None, nice: int) -> None:
        """Start it."""
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload([__name__])
        self._name = output.name
        self._failure, theirs = context.Pipe(duplex=False)
        self._process = context.Process(target=_work, args=(job, output, hiding, theirs))
        self._process.start()
        theirs.close()
        self.set_nice(nice)

    @property
    def goes_on(self) -> bool:
        """Return whether it has not ended."""
        return self._process.is_alive()

    def set_nice(self, nice: int) -> None:
        """Set the niceness of its threads, if this process may do so."""
        with contextlib.suppress(OSError):  # it may have ended, too
            for thread in Path(f"/proc/{self._process.pid}/task").iterdir():
                os.setpriority(os.PRIO_PROCESS, int(thread.name), nice)

    def end(self) -> str | None:
        """Wait for its end; return why it failed, or None."""
        try:
            failure: str | None = self._failure.recv()
        except EOFError:
            failure = f"cannot write {self._name}: its conversion was killed"
        self._process.join()
        return failure


def _work(job: Job, output: Path, hiding: Hiding | None, failure: Connection) -> None:
    """Convert, and ignore Ctrl-C: it ends the recorder, not a conversion."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    failure.send(_convert(job, output, hiding))


def _convert(job: Job, output: Path, hiding: Hiding | None) -> str | None:
    """Make one trace; on failure return the reason, and keep its segments."""
    work = work_directory(output)
    try:
        convert(job.segments, work, hiding, frozen=job.frozen)
        publish(work, output)
    except (OSError, SpoolscopeError) as error:
        discard(work)
        return f"cannot write {output.name}: {getattr(error, 'strerror', None) or error}"
    for segment in job.segments:
        segment.unlink()
    return None
