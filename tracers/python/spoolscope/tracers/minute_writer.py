"""The minutes of a recorder, from the files of the native one to tables of roll-ups."""

import json
import os
import signal
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path

from spoolscope.tracers.handover import agree, begun, forget_dead, is_over, window
from spoolscope.tracers.recorder import Event
from spoolscope.tracers.summed import About, Names, Summed
from spoolscope.traces import unfinished
from spoolscope.traces.errors import SpoolscopeError
from spoolscope.traces.files import write_file
from spoolscope.traces.rollups.files import is_written, write

DAMAGED = "damaged-"
"""Beginning of the names that files get which cannot be read; no later start looks at them."""
MISSED = {"unmounted": "was unmounted", "hidden": "has another filesystem mounted over it"}
"""Events after which calls on a spool are not seen, in words."""


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
        unmounted: Spools that were unmounted during the recording.
        hidden: Spools over which another filesystem was mounted during the recording.
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
    hidden: tuple[str, ...] = ()
    handed_over: bool = False


@dataclass
class Writer:
    """Makes tables of the files that the native recorder writes into ``work``.

    ``started`` is called once another recorder can find this one. ``has_command``: the recording
    is of a command, and lasts as long as that.
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
    tell: Callable[[str], None] = lambda _what: None
    has_command: bool = False
    spent_ns: int = field(default_factory=time.process_time_ns)

    def begin(self) -> None:
        """Note what the tables need, for a later command in case that this one is killed."""
        write_file(self.work / unfinished.ABOUT, json.dumps(asdict(self.about)), private=True)
        self.started()

    def on(self, event: Event) -> None:
        """Handle an event of the recorder."""
        if event["event"] == "begun" and self.predecessor is not None:
            agree(self.work, self.predecessor, time.time(), self.period_s)
        if event["event"] in MISSED:
            self._miss(event["event"], event["spool"])
        if event["event"] == "minute":
            forget_dead(self.work)
            file = self.work / event["file"]
            minute_s = self.flush(Summed.read(file))
            file.unlink()
            self.each()
            if not self.done.handed_over and is_over(self.work, minute_s, self.period_s):
                self.done.handed_over = True
                _end_in_order()

    def _miss(self, event: str, spool: str) -> None:
        """Say that calls on a spool are not seen from now on; end, to be started again.

        Sums are of the device that was at its place when the recording began.
        """
        done = self.done
        if event == "unmounted":
            done.unmounted += (spool,)
        else:
            done.hidden += (spool,)
        why = f"the spool {spool} {MISSED[event]}"
        if self.has_command:
            self.tell(f"goes on, but {why}: calls there are in no sum")
        elif done.failure is None:
            self.tell(f"ends, as {why}")
            done.failure = f"{why}: start it again, it records what is mounted there then"
            _end_in_order()

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
                set_aside(file)
                damaged += 1
            else:
                self.flush(summed, left=True)
                file.unlink()
        return len(left) - damaged, damaged


def _end_in_order() -> None:
    os.kill(os.getpid(), signal.SIGINT)


def set_aside(place: Path) -> Path:
    """Rename what cannot be read, so that no later start stumbles over it; return its new path."""
    dot = "." * place.name.startswith(".")
    return place.rename(place.with_name(f"{dot}{DAMAGED}{place.name.removeprefix('.')}"))
