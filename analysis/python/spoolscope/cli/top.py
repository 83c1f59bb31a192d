"""The verb top: current users of the spool, on a screen or interval by interval."""

import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import click

from spoolscope.cli.limits import PID, Duration, Number
from spoolscope.cli.names import names_options
from spoolscope.cli.output import warn
from spoolscope.cli.printing import say
from spoolscope.cli.terminal import can_be_a_screen
from spoolscope.cli.top_live import Intervals, Live, watch
from spoolscope.replay.interrupts import ending_on_signals
from spoolscope.tracers.request import Limit, Request
from spoolscope.traces.errors import INCOMPLETE, USAGE, SpoolscopeError
from spoolscope.traces.pseudonym import HIDDEN
from spoolscope.traces.reveal import DO_NOT_GIVE_AWAY
from spoolscope.traces.text import shown, shown_json

if TYPE_CHECKING:
    from spoolscope.analysis.top import Interval

# Most intervals that wait for conversion: a machine that is too slow shows the newest.
BEHIND = 3
# Largest number of intervals, and of rows.
MOST = 1_000_000


@click.command("top", epilog="Example: sudo spoolscope top --spool /var/mail")
@click.option(
    "--spool",
    "spools",
    multiple=True,
    type=click.Path(path_type=Path),
    help="Mount point to watch; may be repeated.",
)
@click.option("-p", "--pid", "pids", multiple=True, type=PID, help="Only this process tree.")
@click.option("--unit", "units", multiple=True, help="Only this systemd unit.")
@click.option("--comm", "comms", multiple=True, help="Only threads of this name.")
@click.option(
    "-i",
    "--interval",
    type=Duration(0.1),
    default="2s",
    show_default=True,
    help="Time of a screen.",
)
@click.option("-n", "--count", type=Number(1, MOST), help="Number of intervals.")
@click.option(
    "-r",
    "--rows",
    type=Number(1, MOST),
    default=20,
    show_default=True,
    help="Processes of a screen; --json has all.",
)
@click.option("-C", "--no-clear", is_flag=True, help="Print intervals, no screen.")
@names_options
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object a line, an interval.")
def command(
    spools: tuple[Path, ...],
    pids: tuple[int, ...],
    units: tuple[str, ...],
    comms: tuple[str, ...],
    interval: float,
    count: int | None,
    rows: int,
    no_clear: bool,
    names: bool,
    key_file: Path | None,
    as_json: bool,
) -> int:
    """Show which processes use the spool, every interval, until Ctrl-C.

    On a terminal it is a screen of processes, mailboxes, files, causes and commits
    (keys p m f c j), to be sorted (s, r), filtered (/) and paused (space); k keeps the
    interval that is shown as a trace in this directory. Elsewhere, and with -C, each
    interval is printed: by process calls, time in them, its causes, and the journal
    commits that it triggered.

    The recorder is that of 'record'; an interval comes some seconds after its end. Each
    costs some 0.6 s of CPU time, besides its calls, to convert and sum up. Nothing else is
    left on disk.
    """
    from spoolscope.tracers.session import record

    if not spools:
        raise SpoolscopeError(
            "no spool named", remedy="give its mount point: --spool /var/mail", exit_code=USAGE
        )
    with ending_on_signals(), tempfile.TemporaryDirectory(prefix="spoolscope-top-") as place:
        request = Request(
            spools=list(spools),
            output=Path(place) / "top",
            duration_s=interval * count if count else None,
            pids=list(pids),
            units=list(units),
            comms=list(comms),
            keep_names=names,  # they are removed with the directory
            key_file=key_file,
            keep_book=False,
            snapshot="none",
            sample_hz=0,
            rotate=Limit(age_s=interval),
            keep=BEHIND,
        )
        display: Screen | Live
        if as_json or no_clear or not can_be_a_screen():
            display = screen = Screen(
                request.output, rows, clear=not no_clear, as_json=as_json, names=names
            )
            summary = record(request, lambda _what, _fraction: screen.look())
            screen.look()
        else:
            display, summary = watch(request, names=names)
    if summary.failure:
        warn(f"the recorder ended early: {summary.failure}")
    if display.skipped:
        warn(f"{display.skipped} intervals were skipped: give a longer --interval")
    return INCOMPLETE if display.lost or summary.failure else 0


@dataclass
class Screen:
    """Printer of each trace of a directory, once."""

    place: Path
    rows: int
    clear: bool
    as_json: bool
    names: bool = False
    lost: int = 0
    intervals: Intervals = field(init=False)

    def __post_init__(self) -> None:
        """Begin with the first trace."""
        self.intervals = Intervals(self.place)

    @property
    def skipped(self) -> int:
        """Intervals that were not shown."""
        return self.intervals.skipped

    def look(self) -> None:
        """Show the traces that are new since the last look."""
        from spoolscope.analysis.top import study_interval

        for trace in self.intervals.new():
            found = study_interval(trace)
            self.lost += found.lost
            self._show(found)

    def _show(self, found: "Interval") -> None:
        if self.as_json:
            mark = {"names": DO_NOT_GIVE_AWAY} if self.names else {}
            say(shown_json({**mark, **found.to_json()}))
            return
        if self.clear:
            click.clear()  # does nothing unless stdout is a terminal
        say(*_lines(found, self.rows), *self._of_names(found), "")

    def _of_names(self, found: "Interval") -> Iterator[str]:
        shown_rows = found.processes[: self.rows]
        if self.names:
            yield f"{DO_NOT_GIVE_AWAY[0].upper()}{DO_NOT_GIVE_AWAY[1:]}."
        elif any(process.comm.startswith(HIDDEN.decode()) for process in shown_rows):
            yield "Names that begin with + are hidden; --names shows them."


def _lines(found: "Interval", rows: int) -> Iterator[str]:
    from spoolscope.analysis.wording import count, duration

    clock = time.strftime("%H:%M:%S", time.localtime(found.start_ns / 1e9))
    calls = sum(process.calls for process in found.processes)
    lost = f", LOST {count(found.lost)}" if found.lost else ""
    yield (
        f"{clock}, {duration(found.duration_ns)}: {count(calls)} calls, "
        f"{count(found.commits)} commits{lost}"
    )
    yield f"{'PID':<7} {'COMM':<15} {'CALLS':>7} {'TIME':>8} {'BLOCKED':>8} {'COMMITS':>7}  MOSTLY"
    for process in found.processes[:rows]:
        times = f"{duration(process.time_ns):>8} {duration(process.blocked_ns):>8}"
        yield (
            f"{process.pid:<7} {shown(process.comm):<15} {process.calls:>7} {times} "
            f"{process.commits:>7}  {_mostly(process.causes, process.time_ns)}"
        )


def _mostly(causes: dict[str, int], time_ns: int) -> str:
    from spoolscope.analysis.causes import CAUSES

    return ", ".join(
        f"{CAUSES[cause].label} {100 * ns / time_ns:.0f} %"
        for cause, ns in list(causes.items())[:1]
        if time_ns
    )
