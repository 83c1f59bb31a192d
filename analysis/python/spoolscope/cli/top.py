"""The verb top: current users of the spool, on a screen or interval by interval."""

import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from spoolscope.cli.limits import PID, Duration, Number
from spoolscope.cli.names import MARK, names_options
from spoolscope.cli.output import warn
from spoolscope.cli.printing import say
from spoolscope.cli.terminal import can_be_a_screen
from spoolscope.cli.top_forms import FormPrinter, form_options
from spoolscope.cli.top_live import Intervals, Live, watch
from spoolscope.cli.top_sums import show_sums
from spoolscope.replay.interrupts import ending_on_signals
from spoolscope.tracers.request import Limit, Request
from spoolscope.traces.errors import INCOMPLETE, USAGE, SpoolscopeError
from spoolscope.traces.pseudonym import HIDDEN
from spoolscope.traces.scratch import scratch
from spoolscope.traces.text import shown

if TYPE_CHECKING:
    from spoolscope.analysis.top import Interval

# Most intervals that wait for conversion: a machine that is too slow shows the newest.
BEHIND = 3
# Largest number of intervals, and of rows.
MOST = 1_000_000


EPILOG = """\b
Examples:
  sudo spoolscope top --spool /var/mail
  sudo spoolscope top --spool /var/mail --deep
"""


@click.command("top", epilog=EPILOG)
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
    help="Processes of a screen; --json and --csv have all.",
)
@click.option("-C", "--no-clear", is_flag=True, help="Print intervals, no screen.")
@click.option(
    "--deep", is_flag=True, help="Show processes, mailboxes and files, by recording every call."
)
@names_options
@form_options
def command(
    spools: tuple[Path, ...],
    pids: tuple[int, ...],
    units: tuple[str, ...],
    comms: tuple[str, ...],
    interval: float,
    count: int | None,
    rows: int,
    no_clear: bool,
    deep: bool,
    names: bool,
    key_file: Path | None,
    form: str | None,
) -> int:
    """Show which programs use the spool, every interval, until Ctrl-C.

    By program and systemd unit: calls, time in them, its causes, and the journal commits
    that they asked for; by process only with --deep. These are the sums of 'record
    --rollup', and cost as little: the first line says how much. A terminal of 116 columns,
    --json and --csv have failed calls and blocked time, too.

    With --deep every call is recorded. On a terminal it is a screen of processes,
    mailboxes, files, causes and commits (keys p m f c j), to be sorted (s, r), filtered
    (/) and paused (space); k keeps the interval that is shown as a trace in this
    directory. Elsewhere, and with -C, each interval is printed, by process. An interval
    comes some seconds after its end, and costs some 0.3 s of CPU time, besides its calls,
    to convert and sum up.

    Nothing else is left on disk.
    """
    from spoolscope.tracers.session import record

    if not spools:
        raise SpoolscopeError(
            "no spool named", remedy="give its mount point: --spool /var/mail", exit_code=USAGE
        )
    with ending_on_signals(), tempfile.TemporaryDirectory(dir=scratch()) as place:
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
            yields=False,  # on a busy machine no interval would come
        )
        if not deep:
            return show_sums(
                replace(request, rotate=Limit(), keep=None, duration_s=None),
                interval,
                rows,
                count=count,
                clear=not no_clear,
                names=names,
                form=form,
            )
        display: Screen | Live
        if form or no_clear or not can_be_a_screen():
            printer = FormPrinter(form, names=names) if form else None
            display = screen = Screen(
                request.output,
                rows,
                clear=not no_clear,
                printer=printer,
                names=names,
                count=count,
            )
            summary = record(request, lambda _what, _fraction: screen.look())
            screen.look()
        else:
            display, summary = watch(request, count, names=names)
    if summary.failure:
        warn(f"the recorder ended early: {summary.failure}")
    if display.skipped:
        warn(f"{display.skipped} intervals were skipped: give a longer --interval")
    return INCOMPLETE if display.lost or summary.failure else 0


@dataclass
class Screen:
    """Printer of the traces of a directory, each once.

    Attributes:
        count: Number of intervals that are shown; None: all.
        lost: Calls that were lost in them.
    """

    place: Path
    rows: int
    clear: bool
    printer: FormPrinter | None = None
    names: bool = False
    count: int | None = None
    lost: int = 0
    intervals: Intervals = field(init=False)

    def __post_init__(self) -> None:
        """Begin with the first trace."""
        self.intervals = Intervals(self.place, self.count)

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
        if self.printer:
            self.printer.show(found.to_json(), "processes")
            return
        if self.clear:
            click.clear()  # does nothing unless stdout is a terminal
        say(*_lines(found, self.rows), *self._of_names(found), "")

    def _of_names(self, found: "Interval") -> Iterator[str]:
        shown_rows = found.processes[: self.rows]
        if self.names:
            yield MARK
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
