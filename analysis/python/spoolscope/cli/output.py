"""Output that is common to all verbs: results, warnings, progress."""

import json
import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from spoolscope.cli.printing import say
from spoolscope.traces import unfinished
from spoolscope.traces.errors import USAGE, SpoolscopeError
from spoolscope.traces.files import check_text, regular
from spoolscope.traces.output import discard
from spoolscope.traces.phases import Progress, unseen
from spoolscope.traces.recording import Recording
from spoolscope.traces.text import shown, shown_json

JSON, CSV, MARKDOWN = "json", "csv", "markdown"
_FORM = "spoolscope.form"


def _chosen(context: click.Context, _option: click.Parameter, form: str | None) -> bool:
    """Store the requested output form; return True if one was requested."""
    if form is not None:
        context.meta[_FORM] = form
    return form is not None


def json_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add --json, --csv and --markdown: ``as_json`` is true, and ``emit_json`` prints that form."""
    for form, what in (
        (MARKDOWN, "Print tables in Markdown, for a ticket."),
        (CSV, "Print tables as CSV, all in one: its first column names each row's."),
        (JSON, "Print one JSON object."),
    ):
        option = click.option(
            f"--{form}", "as_json", flag_value=form, default=None, callback=_chosen, help=what
        )
        command = option(command)
    return command


force_option = click.option("-f", "--force", is_flag=True, help="Replace an existing output.")
quiet_option = click.option("-q", "--quiet", is_flag=True, help="No progress display.")
key_file_option = click.option(
    "--key-file", type=click.Path(path_type=Path), help="Key of the pseudonyms (made if missing)."
)
hide_programs_option = click.option(
    "--hide-programs",
    is_flag=True,
    help="Hide the names of all programs, not only those that name a mailbox, user or file.",
)
replayed_trace_option = click.option(
    "--trace",
    type=click.Path(path_type=Path),
    help="The replayed trace, if it is not where it was beside the replay.",
)
new_trace_option = click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    required=True,
    help="Trace directory to write.",
)

PLAIN_INTERVAL_S = 5.0
AT_LENGTH_S = 2.0
"""Seconds before logs show progress, as most commands end at once."""
LEAST_DONE = 0.02
"""Share done below which no remaining time is shown."""


def form_asked() -> str:
    """Return the requested form: JSON, CSV or MARKDOWN."""
    context = click.get_current_context(silent=True)
    return str(context.meta.get(_FORM, JSON)) if context else JSON


def emit_json(value: Mapping[str, Any] | Sequence[Any]) -> None:
    """Print the whole result of a verb on stdout: as JSON, or as the tables that it holds."""
    form = form_asked()
    text = shown_json(value, indent=2, default=_plain)
    if "NaN" in text or "Infinity" in text:  # Python's words for what JSON has no number for
        text = shown_json(json.loads(text, parse_constant=lambda _: None), indent=2)
    if form == JSON:
        say(*text.split("\n"))
        return
    from spoolscope.cli.markdown import document
    from spoolscope.cli.sheets import sheets
    from spoolscope.export.rows import csv_sheets

    found = sheets(json.loads(text))
    if form == CSV:
        say(*csv_sheets([(sheet.name, sheet.rows) for sheet in found]))
    else:
        say(*document(click.get_current_context().command_path, found))


def wrote(path: Path, then: str | None = None) -> None:
    """Print the end of a verb's text: the written path and the next command."""
    say(f"Wrote {path}")
    if then:
        say(next_line(then))


def next_line(command: str) -> str:
    """Return the line with the next command, under sudo if this one is: what it wrote is root's."""
    by_sudo = os.geteuid() == 0 and os.environ.get("SUDO_UID", "0") != "0"
    return f"Next: {'sudo ' if by_sudo and not command.startswith('sudo ') else ''}{command}"


def warn(message: str) -> None:
    """Print a warning on stderr."""
    say(f"spoolscope: warning: {message}", err=True)


@contextmanager
def claim_output(path: Path, *, force: bool, inputs: Sequence[Path] = ()) -> Iterator[None]:
    """Make sure that an output path is free; with ``force`` move existing output aside.

    It is removed when the block ends; if the block fails and leaves nothing, it is restored.

    Args:
        path: Path to be written.
        force: Existing output may be replaced.
        inputs: Paths that are read, and so must not be removed.

    Raises:
        SpoolscopeError: it exists and ``force`` is not set, it is not spoolscope's to remove, or
            it lies in a trace that is read.
    """
    if str(path) == "-":
        raise SpoolscopeError(
            "-o - would write a file named '-'",
            remedy="give a file's name, and print that",
            exit_code=USAGE,
        )
    check_text(path)
    _check_outside(path, inputs)
    if path.parent.is_dir() and not os.access(path.parent, os.W_OK):
        # Before the work, which may take minutes.
        raise SpoolscopeError(
            f"{path.parent} may not be written", remedy="give another -o, or use sudo"
        )
    if not _is_there(path):
        yield
        return
    if not force:
        raise SpoolscopeError(
            f"output {path} exists", remedy="give another -o, or --force", exit_code=USAGE
        )
    _check_removable(path, inputs)
    place = Path(tempfile.mkdtemp(prefix=f".{path.name}.replaced-", dir=path.parent))
    unfinished.begin(place, "replaced", path)
    aside = path.rename(place / path.name)
    try:
        yield
    except BaseException:
        if not _is_there(path):
            aside.rename(path)
        raise
    finally:
        discard(place)


def _check_outside(path: Path, inputs: Sequence[Path]) -> None:
    """Refuse a path in a trace that is read; the directory of a replay may hold its report."""
    parents = path.resolve().parents
    for trace in (file.resolve() for file in inputs):
        if trace in parents and (trace / "meta.json").exists():
            raise SpoolscopeError(
                f"output {path} lies in {trace}, which is read",
                remedy="give another -o",
                exit_code=USAGE,
            )


def _is_there(path: Path) -> bool:
    """Return True if the path exists and is not an empty directory."""
    if path.is_dir() and not path.is_symlink():
        return any(path.iterdir())
    return path.exists() or path.is_symlink()


def _check_removable(path: Path, inputs: Sequence[Path]) -> None:
    real = path.resolve()
    for held in (file.resolve() for file in inputs):
        if held == real or real in held.parents:
            raise SpoolscopeError(
                f"output {path} is or holds {held}, which is read",
                remedy="give another -o",
                exit_code=USAGE,
            )
    if path.exists() and not path.is_file() and not path.is_dir():
        raise SpoolscopeError(
            f"output {path} is no file, but a device or a pipe",
            remedy="give another -o",
            exit_code=USAGE,
        )
    if not path.is_dir() or path.is_symlink():
        return
    if used := _used_below(real):
        raise SpoolscopeError(
            f"output {path} is in use: a command works in {used}, or something is mounted there",
            remedy="wait for the command; if it was killed, 'spoolscope clean' unmounts",
        )
    if not _is_ours(path):
        raise SpoolscopeError(
            f"output {path} is a directory that spoolscope did not write",
            remedy="give another -o",
            exit_code=USAGE,
        )


def _used_below(directory: Path) -> Path | None:
    """Return a command's working directory or a mount point at or below a directory, if any."""
    places = (Path(place) for place, _, _ in os.walk(directory))
    return next((at for at in places if at.is_mount() or unfinished.in_use(at)), None)


def _is_ours(directory: Path) -> bool:
    """Return True if spoolscope wrote this directory: results, or an even incomplete trace."""
    if (directory / "replay.json").is_file():
        return True
    if (directory / "results.json").is_file() and (directory / "results.parquet").is_file():
        return True
    if Recording.is_one(directory):
        return Recording.open(directory).recorder() is None
    try:
        meta = json.loads(regular(directory / "meta.json").read_text())
    except (OSError, ValueError):
        return False
    return isinstance(meta, dict) and str(meta.get("schema", "")).startswith("spoolscope/")


@contextmanager
def progress(*, quiet: bool = False, after_s: float = 0.0) -> Iterator[Progress]:
    """Show progress with an ETA on stderr while the block runs.

    In a log, a phase that ends before ``after_s`` shows nothing.

    Yields a function ``show(what, fraction)``; a fraction of None means "no end known".
    A terminal gets a bar, anything else a line whenever the step changes or 5 s have passed.
    """
    if quiet:
        yield unseen
        return
    display = _Bar(after_s) if sys.stderr.isatty() else _Plain(after_s)
    over = threading.Event()

    def beat() -> None:
        while not over.wait(1):
            display.beat()

    beater = threading.Thread(target=beat, daemon=True)
    beater.start()
    try:
        yield display
    finally:
        over.set()
        beater.join()
        display.end()


class _Bar:
    """Progress for a terminal: one changing line, removed at the end."""

    def __init__(self, after_s: float = 0.0) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
        from rich.progress import Progress as Display

        columns = (
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            TextColumn("{task.percentage:>3.0f} %"),
            TimeElapsedColumn(),
            TextColumn("ETA"),
            TimeRemainingColumn(),
        )
        self._display = Display(*columns, console=Console(stderr=True), transient=True)
        self._task, self._pace = self._display.add_task("", total=None), Pace()
        self._visible_from = time.monotonic() + after_s
        self.beat()

    def __call__(self, what: str, fraction: float | None) -> None:
        total = None if fraction is None else 1.0
        if self._pace.at(0.0, fraction) and fraction is not None:
            self._display.reset(self._task, total=total)
        self._display.update(
            self._task, description=shown(what), total=total, completed=fraction or 0.0
        )

    def beat(self) -> None:
        """Show the bar, when it is due."""
        if time.monotonic() >= self._visible_from:
            self._display.start()

    def end(self) -> None:
        """Remove the bar."""
        self._display.stop()


class _Plain:
    """Progress for logs: few lines, each with elapsed time and ETA.

    ``beat`` repeats a step without news.
    """

    def __init__(self, after_s: float = 0.0) -> None:
        self._after_s = after_s
        self._began = time.monotonic()
        self._shown = -PLAIN_INTERVAL_S
        self._what = ""
        self._fraction: float | None = None
        self._pace = Pace()
        self._lock = threading.Lock()

    def __call__(self, what: str, fraction: float | None) -> None:
        now = time.monotonic() - self._began
        with self._lock:
            self._pace.at(now, fraction)
            changed = what != self._what
            self._what, self._fraction = what, fraction
            if changed or self._is_due(now):
                self._show(now)

    def beat(self) -> None:
        """Show the step under way if nothing was shown for a while."""
        now = time.monotonic() - self._began
        with self._lock:
            if self._what and self._is_due(now):
                self._show(now)

    def end(self) -> None:
        """Keep the lines that were shown."""

    def _is_due(self, now: float) -> bool:
        return now - self._shown >= PLAIN_INTERVAL_S

    def _show(self, now: float) -> None:
        if now < self._after_s:
            return
        self._shown = now
        share = "" if self._fraction is None else f"  {100 * self._fraction:.0f} %"
        left = self._pace.left_s(now)
        eta = "" if left is None else f", ETA {left:.0f} s"
        say(f"[{now:6.1f} s] {self._what}{share}{eta}", err=True)


class Pace:
    """Estimate of the remaining time, from the progress since the share last began anew."""

    def __init__(self) -> None:
        self._base: tuple[float, float] | None = None
        self._last = 0.0
        self._end: float | None = None

    def at(self, now: float, fraction: float | None) -> bool:
        """Note a share; return True if it began anew, as for another piece of work."""
        if fraction is None:
            self._base = self._end = None
            return True
        anew = self._base is None or fraction < self._last
        if anew or self._base is None:
            self._base, self._end = (now, fraction), None
        since, before = self._base
        if fraction - before >= LEAST_DONE and fraction < 1:
            self._end = now + (now - since) * (1 - fraction) / (fraction - before)
        elif fraction >= 1:
            self._end = None
        self._last = fraction
        return anew

    def left_s(self, now: float) -> float | None:
        """Return the seconds to the end; None if there is no basis for it, or they have passed."""
        return self._end - now if self._end is not None and self._end > now else None


def _plain(value: Any) -> Any:
    """Turn numpy scalars and paths into types that JSON has."""
    if isinstance(value, Path):
        return str(value)
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(f"{type(value).__name__} is not JSON")


def wrapped(text: str, indent: str = "", then: str | None = None) -> list[str]:
    """Return the lines of a text no wider than a terminal; words, such as paths, stay whole.

    Args:
        text: One paragraph.
        indent: Indent of the first line.
        then: Indent of further lines; by default two more blanks.
    """
    import textwrap

    return textwrap.wrap(
        shown(text),  # first, as wrapping would turn a line end in a name into a blank
        80,
        initial_indent=indent,
        subsequent_indent=indent + "  " if then is None else then,
        break_long_words=False,
        break_on_hyphens=False,
    )


def field(label: str, value: str, width: int) -> list[str]:
    """Return the lines of a value beside its label, which ends in column ``width``."""
    return wrapped(value, f"{label:>{width}}  ", " " * (width + 2)) or [f"{label:>{width}}"]
