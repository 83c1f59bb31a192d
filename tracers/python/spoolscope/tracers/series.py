"""A recording in several traces: segments are converted while it goes on."""

import shutil
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from spoolscope.tracers.converter import Converter, Job
from spoolscope.tracers.hook import Hook
from spoolscope.tracers.minute_writer import MISSED
from spoolscope.tracers.recorder import Event, Recorder
from spoolscope.tracers.request import Request
from spoolscope.traces import unfinished
from spoolscope.traces.output import discard, place_of
from spoolscope.traces.private import Hiding
from spoolscope.traces.recording import (
    CAPTURES,
    DISK_FULL,
    FROZEN,
    ROTATED,
    Recording,
    segment_name,
    segment_number,
    started_at,
    write_control,
)


@dataclass(frozen=True)
class _Failed:
    """A trace that could not be made; its segments are kept."""

    job: Job
    name: str
    failure: str

    def to_json(self) -> dict[str, Any]:
        """Return it in the form of recording.json."""
        segments = [segment_number(segment) for segment in self.job.segments]
        return {"trace": self.name, "failure": self.failure, "segments": segments}


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
    _failed: list[_Failed] = field(default_factory=list)
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
        self._converter = Converter()
        self._yields = self.request.yields
        self._ends = False
        self._job: Job | None = None  # the one that is being converted
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
        control["failures"] = [failed.to_json() for failed in self._failed]
        write_control(self.path, control)

    @property
    def failures(self) -> list[str]:
        """Why traces could not be made that are not made yet."""
        return [failed.failure for failed in self._failed]

    def on(self, event: Event) -> None:
        """Handle an event of the recorder; queue its segments."""
        if event["event"] == "segment":
            self._add(Job([self._segment(event["number"])]))
        elif event["event"] == "frozen":
            segments = [self._segment(number) for number in event["numbers"]]
            self._add(Job(segments, event))
            if event["why"] != "end":
                self.tell(f"froze at {_now()}: {event['why']}")
        elif event["event"] in MISSED and not self.request.rollup_s:  # else the sums say it
            why = f"the spool {event['spool']} {MISSED[event['event']]}"
            self.tell(f"goes on, but {why}: calls there are not recorded")
        elif event["event"] == "done" and event["meta"].get("ended") == DISK_FULL:
            self.early = f"ended early at {_now()}: the disk of its output was full"
            self.tell(self.early)

    def _segment(self, number: int) -> Path:
        return self.captures / segment_name(number)

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
        if self._job is not None and self._converter.is_busy:
            return
        self._finished()
        if self.pending:
            job = self._job = self.pending.popleft()
            if not job.number:
                self.number += 1
                job.number = self.number
            self._converter.begin(job, self._output(job), self.hiding, yields=self._yields)

    def _output(self, job: Job) -> Path:
        return self.path / f"{self.kind}-{job.number:06}"

    def _finished(self) -> None:
        if self._job is None:
            return
        job, self._job = self._job, None
        made_now = self._output(job)
        if failure := self._converter.end():
            self._failed.append(_Failed(job, made_now.name, failure))
            self._write_control()
            if not self._ends:
                self.tell(f"{failure}; it is tried once more when the recording ends")
        else:
            self.made(made_now)
            if job.frozen and job.frozen["why"] != "end":
                self.hook.add(made_now, str(job.frozen["why"]))
        made = sorted(self.path.glob(f"{self.kind}-*"))
        for old in made[: -self.request.keep] if self.request.keep else []:
            with suppress(FileNotFoundError):  # somebody else removes it, too
                shutil.rmtree(old)

    def end(self) -> None:
        """Convert all segments that are left, also those that a killed recorder did not report.

        Traces that could not be made are tried once more, as what they are: their memory may be
        free by now. The recording is over and an operator waits: nothing is disturbed but by these.
        """
        self.pending.extendleft(failed.job for failed in reversed(self._failed))
        self._failed, self._ends = [], True
        jobs = [*self.pending, *([self._job] if self._job else [])]
        self._yields = False
        self._converter.set_priority(yields=False)
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
        self.close()
        self.hook.end()
        self._write_control()
        if not self.failures:
            discard(self.captures)

    def close(self) -> None:
        """Let the process end that converts."""
        self._converter.close()


def _now() -> str:
    return f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S} UTC"
