"""The screen of top during the recording: studies intervals, reads keys, draws lines."""

import os
import shutil
import signal
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING

from spoolscope.cli.output import wrote
from spoolscope.cli.terminal import Terminal
from spoolscope.cli.top_screen import TopScreen
from spoolscope.tracers.request import Request
from spoolscope.traces.errors import SpoolscopeError
from spoolscope.traces.output import check_output, discard, publish, work_directory
from spoolscope.traces.recording import Recording

if TYPE_CHECKING:
    from spoolscope.analysis.top import Interval
    from spoolscope.tracers.session import Summary


@dataclass
class Intervals:
    """The traces of a recording, each once, as they come.

    Attributes:
        most: Number of segments that were asked for; None: all. A recording ends some
            milliseconds after the last one, in one more.
        skipped: Segments that were not shown.
    """

    place: Path
    most: int | None = None
    skipped: int = 0
    _seen: set[str] = field(default_factory=set)
    _segment: int = 0

    def new(self) -> Iterator[Path]:
        """Yield the traces that are new since the last time."""
        if not Recording.is_one(self.place):
            return
        for trace, meta in Recording.open(self.place).described():
            if trace.name not in self._seen:
                self._seen.add(trace.name)
                segment = int(meta["segment"])
                if self.most is not None and segment > self.most:
                    continue
                self.skipped += segment - self._segment - 1
                self._segment = segment
                yield trace


def watch(request: Request, count: int | None, *, names: bool) -> "tuple[Live, Summary]":
    """Record, with the screen, until its user leaves or so many intervals are over."""
    from spoolscope.tracers.session import record

    with ThreadPoolExecutor(1) as worker:
        live = Live(request, worker, count, names=names)
        with Terminal() as live.terminal:
            summary = record(request, live.tick)
    for trace in live.kept:
        wrote(trace, f"spoolscope explain {quote(str(trace))}")
    return live, summary


class Live:
    """The screen while recording goes on.

    Attributes:
        kept: Traces that were kept.
        lost: Calls that were lost in the shown intervals.
    """

    terminal: Terminal

    def __init__(
        self, request: Request, worker: ThreadPoolExecutor, count: int | None, *, names: bool
    ) -> None:
        self._request, self._worker = request, worker
        self._intervals = Intervals(request.output, count)
        self._waiting: list[Path] = []
        self._studied: tuple[Future[Interval], Path] | None = None
        self._shown: Path | None = None
        self._screen = TopScreen(self._keep, "real names" if names else "")
        self.kept: list[Path] = []
        self.lost = 0

    @property
    def skipped(self) -> int:
        """Intervals that were not shown."""
        return self._intervals.skipped

    def tick(self, phase: str, _fraction: float | None) -> None:
        """Study, read keys and draw; called about ten times a second."""
        for key in self.terminal.pressed():
            self._screen.press(key)
        self._study()
        if self._screen.found is None:
            self._screen.message = phase
        if self._screen.over:
            self._screen.over, self._screen.message = False, "ending"
            os.kill(os.getpid(), signal.SIGINT)  # ends the recording in order
        self.terminal.draw(self._screen.lines(*self.terminal.size))

    def _study(self) -> None:
        """Study one interval after the other in the worker, so that keys do not wait."""
        if self._studied is not None and self._studied[0].done():
            (future, copy), self._studied = self._studied, None
            self._show(future.result(), copy)
        self._waiting += self._intervals.new()
        if self._studied is None and self._waiting:
            trace = self._waiting.pop(0)
            copy = self._request.output.with_name(f"shown-{trace.name}")
            try:  # the recording removes old ones
                shutil.copytree(trace, copy, copy_function=os.link)
            except (OSError, shutil.Error):
                self._intervals.skipped += 1
                return
            self._studied = self._worker.submit(_studied, copy), copy

    def _show(self, found: "Interval", copy: Path) -> None:
        """Show an interval unless the screen is paused, and hold the trace of the shown one."""
        self.lost += found.lost
        self._screen.show(found)
        old, self._shown = (copy, self._shown) if self._screen.paused else (self._shown, copy)
        if old is not None:
            shutil.rmtree(old)

    def _keep(self) -> str:
        """Keep the trace of the interval that is shown."""
        from spoolscope.tracers.session import refuse_output_on_spool

        if self._shown is None:
            return "nothing to keep yet"
        output = Path(time.strftime("top-%Y%m%d-%H%M%S.trace"))
        try:
            check_output(output)
            refuse_output_on_spool(output, self._request.spools)
            work = work_directory(output)
            try:
                shutil.copytree(self._shown, work, dirs_exist_ok=True)
                publish(work, output)
            except OSError:
                discard(work)
                raise
        except (SpoolscopeError, OSError) as error:
            return f"not kept: {getattr(error, 'strerror', None) or error}"
        self.kept.append(output)
        return f"kept as {output}" + (", with real names" if self._request.keep_names else "")


def _studied(trace: Path) -> "Interval":
    from spoolscope.analysis.top import study_interval

    return study_interval(trace)
