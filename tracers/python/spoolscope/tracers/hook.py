"""The command that an operator has run when a flight recorder has frozen a trace."""

import os
import signal
import subprocess
import tempfile
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO, Any

from spoolscope.traces.text import shown

# Time that commands get to end at the end of a recording.
PATIENCE_S = 30.0
# Size of the end of a command's output that is kept.
KEPT_BYTES = 4096
_POLL_S = 0.05


@dataclass(frozen=True)
class Ran:
    """A command that has run.

    Attributes:
        trace: Name of the trace that it was run for.
        status: Its exit status; -N if signal N ended it; None if it did not begin.
        seconds: How long it ran.
        output: The end of what it printed, stdout and stderr.
    """

    trace: str
    status: int | None
    seconds: float
    output: str

    @property
    def words(self) -> str:
        """The result on one line."""
        what = "did not begin" if self.status is None else f"ended with {self.status}"
        said = f": {shown(self.output.strip())}" if self.output.strip() else ""
        return f"ran the command for {self.trace}: it {what}{said}"


@dataclass
class _Running:
    trace: Path
    process: subprocess.Popen[bytes]
    output: IO[bytes]
    since: float


@dataclass
class Hook:
    """Runs a command for one trace after the other, during the recording.

    Args:
        command: Its words; the path of the trace is added. If empty, nothing is run.
        tell: Called with the result of each run.
    """

    command: Sequence[str]
    tell: Callable[[str], None]
    ran: list[Ran] = field(default_factory=list)
    _waiting: deque[tuple[Path, str]] = field(default_factory=deque)
    _running: _Running | None = None

    def add(self, trace: Path, why: str) -> None:
        """Queue the command for a trace; ``why`` it was frozen is in $SPOOLSCOPE_WHY."""
        if self.command:
            self._waiting.append((trace, why))

    def step(self) -> bool:
        """Note a command that has ended and begin the next; return whether one has ended."""
        before = len(self.ran)
        if self._running is not None and self._running.process.poll() is not None:
            self._ended()
        if self._running is None and self._waiting:
            self._begin(*self._waiting.popleft())
        return len(self.ran) > before

    def end(self) -> None:
        """Run all queued commands; one that runs after PATIENCE_S is killed."""
        until = time.monotonic() + PATIENCE_S
        while self._running is not None or self._waiting:
            self.step()
            if self._running is not None and time.monotonic() > until:
                os.killpg(self._running.process.pid, signal.SIGKILL)
                self._running.process.wait()
            else:
                time.sleep(_POLL_S)

    def to_json(self) -> list[dict[str, Any]]:
        """Return the results in the form of recording.json."""
        return [asdict(ran) for ran in self.ran]

    def _begin(self, trace: Path, why: str) -> None:
        output = tempfile.TemporaryFile()  # noqa: SIM115 - until it has ended
        try:
            process = subprocess.Popen(
                [*self.command, str(trace)],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**os.environ, "SPOOLSCOPE_WHY": why},
                start_new_session=True,  # Ctrl-C must not reach it
            )
        except OSError as error:
            output.close()
            self._note(Ran(trace.name, None, 0.0, str(error.strerror)))
            return
        self._running = _Running(trace, process, output, time.monotonic())

    def _ended(self) -> None:
        running, self._running = self._running, None
        assert running is not None
        with running.output as output:
            output.seek(max(0, output.seek(0, os.SEEK_END) - KEPT_BYTES))
            said = output.read(KEPT_BYTES).decode(errors="replace")
        seconds = round(time.monotonic() - running.since, 3)
        self._note(Ran(running.trace.name, running.process.returncode, seconds, said))

    def _note(self, ran: Ran) -> None:
        self.ran.append(ran)
        self.tell(ran.words)
