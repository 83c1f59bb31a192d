"""The process that makes the traces of a divided recording while it goes on."""

import contextlib
import os
import signal
import traceback
from dataclasses import dataclass
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import NoReturn

from spoolscope.tracers.convert import convert
from spoolscope.tracers.recorder import Event
from spoolscope.traces.errors import SpoolscopeError
from spoolscope.traces.output import discard, publish, work_directory
from spoolscope.traces.private import Hiding

NICE = 10
"""A conversion during a recording is nicer by that; by 19 it gets nothing if all CPUs are busy."""
_FAILED = "its conversion was killed, or failed as printed above"


@dataclass
class Job:
    """Segments that become one trace; its number is 0 until its conversion begins."""

    segments: list[Path]
    frozen: Event | None = None
    number: int = 0


class Converter:
    """A process that makes traces, each in a child of its own, so that its memory is freed.

    It is forked before the recording begins: the modules are loaded, which takes as long as a small
    trace, and no other thread runs. It ends when this process does, after the trace that it makes.
    """

    def __init__(self) -> None:
        """Start it."""
        self._jobs, theirs = Pipe()
        self._nice = os.getpriority(os.PRIO_PROCESS, 0)
        self._name = ""
        self.pid = os.fork()
        if not self.pid:
            self._jobs.close()
            _serve(theirs)
        theirs.close()
        with contextlib.suppress(OSError):  # it does the same, perhaps first
            os.setpgid(self.pid, 0)

    def begin(self, job: Job, output: Path, hiding: Hiding | None, *, yields: bool) -> None:
        """Make a trace."""
        self._name = output.name
        self.set_priority(yields=yields)
        with contextlib.suppress(OSError):  # it was killed: so says end()
            self._jobs.send((job, output, hiding))

    @property
    def is_busy(self) -> bool:
        """Return whether the trace is being made."""
        return not self._jobs.poll()

    def set_priority(self, *, yields: bool) -> None:
        """Give it and its child the priority of this process, or a lower one."""
        with contextlib.suppress(OSError):  # this process may not raise it
            os.setpriority(os.PRIO_PGRP, self.pid, min(self._nice + NICE * yields, 19))

    def end(self) -> str | None:
        """Wait for the trace; return why it could not be made, or None."""
        try:
            failure: str | None = self._jobs.recv()
        except (EOFError, OSError):
            failure = _FAILED
        return f"cannot write {self._name}: {failure}" if failure else None

    def close(self) -> None:
        """Let it end."""
        self._jobs.close()
        os.waitpid(self.pid, 0)


def _serve(jobs: Connection) -> NoReturn:
    """Make traces until the recorder's process ends; Ctrl-C ends that, not a conversion."""
    try:
        os.setpgid(0, 0)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        while True:
            job, output, hiding = jobs.recv()
            if not (child := os.fork()):
                jobs.send(_convert(job, output, hiding))
                os._exit(0)
            if os.waitpid(child, 0)[1] != 0:
                jobs.send(_FAILED)
    except (EOFError, BrokenPipeError):  # the recorder's process is gone
        pass
    except BaseException:  # nothing of the recorder's process may run in this one
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


def _convert(job: Job, output: Path, hiding: Hiding | None) -> str | None:
    """Make one trace; on failure return the reason, and keep its segments."""
    work = work_directory(output)
    try:
        convert(job.segments, work, hiding, frozen=job.frozen)
        publish(work, output)
    except (OSError, SpoolscopeError) as error:
        discard(work)
        return str(getattr(error, "strerror", None) or error)
    for segment in job.segments:
        segment.unlink()
    return None
