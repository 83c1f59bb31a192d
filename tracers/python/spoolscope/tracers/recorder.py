"""The native recorder as a process: its arguments, messages and exit status."""

import json
import os
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from spoolscope.tracers.request import Request
from spoolscope.traces import native_failures
from spoolscope.traces.errors import SpoolscopeError
from spoolscope.traces.files import write_file
from spoolscope.traces.native import find_binary

POLL_S = 0.1
SELDOM_S, POLLS = 1.0, 10
"""Most seconds between two looks, and looks in a period, if calls are summed over periods."""

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

Event = dict[str, Any]


class Recorder:
    """A running spoolscope-record that writes a capture and reports events.

    Attributes:
        signalled: A termination signal came while it ran.
    """

    def __init__(self, request: Request, capture: Path) -> None:
        """Start it; ``capture`` is the file to write, its messages go to a file beside it."""
        self._answers = capture.with_suffix(".json")
        self._answers.touch(mode=0o600, exist_ok=False)
        if request.cause_rules:
            write_file(_cause_file(capture), json.dumps(request.cause_rules), private=True)
        self._read_bytes = 0
        self._last: dict[str, Event] = {}
        self.signalled = False
        self._process = subprocess.Popen(
            [
                str(find_binary("spoolscope-record")),
                *_arguments(request, capture, self._answers),
            ],
            stdout=sys.stderr if request.stdout_to_stderr else None,
        )
        self._poll_s = min(SELDOM_S, max(POLL_S, (request.rollup_s or 0) / POLLS))
        self._end = os.pidfd_open(self._process.pid)

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    def stop(self) -> None:
        """End the recording in order."""
        self._process.send_signal(signal.SIGINT)

    def kill(self) -> None:
        """End it at once, if it still runs."""
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()

    def events(self) -> Iterator[Event | None]:
        """Yield its events, and None if there was none for a moment, until it ends.

        A termination signal during this ends the recording in order, and so the iteration.
        """
        with self._passing_signals_on():
            running = True
            while running:
                running = self._process.poll() is None
                said = self._new_events()
                yield from said
                if running and not said:
                    yield None
                    self._wait()

    @contextmanager
    def _passing_signals_on(self) -> Iterator[None]:
        if threading.current_thread() is not threading.main_thread():
            yield
            return

        def stop(_number: int, _frame: Any) -> None:
            self.signalled = True
            self.stop()

        # Under nohup the end of the terminal is ignored.
        heard = [n for n in ENDING if (n, signal.getsignal(n)) != (signal.SIGHUP, signal.SIG_IGN)]
        before = {number: signal.signal(number, stop) for number in heard}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _wait(self) -> None:
        """Wait a moment for the end of the recorder, not of a command that outlives it.

        ``Popen.wait`` would look 20 times a second.
        """
        select.select([self._end], [], [], self._poll_s)

    def end(self) -> int | None:
        """Return the command's exit status as a shell gives it, None without a command.

        Raises:
            SpoolscopeError: the recorder failed.
        """
        os.close(self._end)
        self._answers.unlink()
        if -self._process.returncode in ENDING:
            raise SpoolscopeError(
                "interrupted before anything was recorded", remedy="run the command again"
            )
        done, error = self._last.get("done"), self._last.get("error")
        if self._process.returncode != 0 or done is None:
            remedy, code = "run 'spoolscope doctor'", self._process.returncode
            if error is not None:
                raise native_failures.of_answer("the recorder", error, remedy=remedy)
            raise native_failures.of_process("the recorder", code, "", remedy=remedy)
        status: int | None = done["meta"]["command_status"]
        return status

    def _new_events(self) -> list[Event]:
        with self._answers.open("rb") as file:
            file.seek(self._read_bytes)
            whole = file.read().rpartition(b"\n")[0]
        if not whole:
            return []
        self._read_bytes += len(whole) + 1
        events: list[Event] = [
            json.loads(line) for line in whole.splitlines() if line.startswith(b'{"')
        ]
        self._last |= {event["event"]: event for event in events}
        return events


def _arguments(request: Request, capture: Path, answers: Path) -> list[str]:
    words = ["run", "--output", str(capture), "--answers", str(answers)]
    words += ["--parent", str(os.getpid())]  # it ends with this process
    words += ["--snapshot", request.snapshot]
    many: dict[str, Sequence[object]] = {
        "--spool": request.spools,
        "--pid": request.pids,
        "--cgroup": request.cgroups,
        "--unit": request.units,
        "--exe": request.exes,
        "--comm": request.comms,
        "--freeze-on": [json.dumps({"rule": r.words, **r.limit}) for r in request.freeze_on],
    }
    for flag, values in many.items():
        words += [word for value in values for word in (flag, str(value))]
    once = {
        "--max-overhead": request.max_overhead_percent,
        "--duration": request.duration_s,
        "--ring-mib": request.ring_mib,
        "--sample-hz": request.sample_hz,
        "--user-stacks": request.user_stacks,
        "--rotate-bytes": request.rotate.size_bytes,
        "--rotate-seconds": request.rotate.age_s,
        "--last-bytes": request.last.size_bytes,
        "--last-seconds": request.last.age_s,
        "--rollup": request.rollup_s,
    }
    words += [
        word for flag, value in once.items() if value is not None for word in (flag, str(value))
    ]
    if request.snapshot_rate is not None:
        words += ["--snapshot-rate", str(request.snapshot_rate)]
    if request.cause_rules:
        words += ["--cause-rules", str(_cause_file(capture))]
    if request.command:
        words += ["--", *request.command]
    return words


def _cause_file(capture: Path) -> Path:
    return capture.with_name("causes.json")
