"""What every verb prints in the same way: results, warnings, progress."""

import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from spoolscope.cli.printing import say
from spoolscope.traces.errors import USAGE, SpoolscopeError
from spoolscope.traces.recording import Recording
from spoolscope.traces.text import shown, shown_json

Progress = Callable[[str, float | None], None]

json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
force_option = click.option("-f", "--force", is_flag=True, help="Replace an existing output.")
quiet_option = click.option("-q", "--quiet", is_flag=True, help="No progress display.")
key_file_option = click.option(
    "--key-file", type=click.Path(path_type=Path), help="Key of the pseudonyms (made if missing)."
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


def emit_json(value: Any) -> None:
    """Print one JSON object, the whole result of a verb, on stdout."""
    say(*shown_json(value, indent=2, default=_plain).split("\n"))


def wrote(path: Path, then: str | None = None) -> None:
    """End a verb's text: what was written and the command to run next."""
    say(f"Wrote {path}")
    if then:
        say(f"Next: {then}")


def warn(message: str) -> None:
    """Print a warning on stderr."""
    say(f"spoolscope: warning: {message}", err=True)


@contextmanager
def claim_output(path: Path, *, force: bool, inputs: Sequence[Path] = ()) -> Iterator[None]:
    """Make sure that an output path is free; with ``force`` put what is there aside.

    That is removed when the block ends; if it fails and leaves nothing, it is back.

    Args:
        path: What is to be written.
        force: What is there may be replaced.
        inputs: What is read, and so is not to be removed.

    Raises:
        SpoolscopeError: it exists and ``force`` is not set, or it is not spoolscope's to remove.
    """
    if not _is_there(path):
        yield
        return
    if not force:
        raise SpoolscopeError(
            f"output {path} exists", remedy="give another -o, or --force", exit_code=USAGE
        )
    _check_removable(path, inputs)
    place = Path(tempfile.mkdtemp(prefix=f".{path.name}.replaced-", dir=path.parent))
    aside = path.rename(place / path.name)
    try:
        yield
    except BaseException:
        if not _is_there(path):
            aside.rename(path)
        raise
    finally:
        shutil.rmtree(place)


def _is_there(path: Path) -> bool:
    """Tell whether there is more than an empty directory."""
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
    if not path.is_dir() or path.is_symlink():
        return
    if mounted := _mounted_below(real):
        raise SpoolscopeError(
            f"output {path} holds a mounted filesystem",
            remedy=f"wait for the replay that uses it; if that was killed, 'spoolscope clean' "
            f"unmounts {mounted}",
        )
    if not _is_ours(path):
        raise SpoolscopeError(
            f"output {path} is a directory that spoolscope did not write",
            remedy="give another -o",
            exit_code=USAGE,
        )


def _mounted_below(directory: Path) -> Path | None:
    """Return a mount point that a directory is or holds, if there is one."""
    places = (Path(place) for place, _, _ in os.walk(directory))
    return next((place for place in places if place.is_mount()), None)


def _is_ours(directory: Path) -> bool:
    """Tell whether spoolscope wrote this directory: a replay, or a trace even if incomplete."""
    if (directory / "replay.json").is_file():
        return True
    if Recording.is_one(directory):
        return Recording.open(directory).recorder() is None
    try:
        meta = json.loads((directory / "meta.json").read_text())
    except (OSError, ValueError):
        return False
    return isinstance(meta, dict) and str(meta.get("schema", "")).startswith("spoolscope/")


@contextmanager
def progress(*, quiet: bool = False) -> Iterator[Progress]:
    """Show progress with an ETA on stderr while the block runs.

    Yields a function ``show(what, fraction)``; a fraction of None means "no end known".
    A terminal gets a bar, anything else a line whenever the step changes or 5 s have passed.
    """
    if quiet:
        yield lambda _what, _fraction: None
    elif sys.stderr.isatty():
        with _bar() as show:
            yield show
    else:
        yield _Plain()


@contextmanager
def _bar() -> Iterator[Progress]:
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
    with Display(*columns, console=Console(stderr=True), transient=True) as display:
        task = display.add_task("", total=None)

        def show(what: str, fraction: float | None) -> None:
            total = None if fraction is None else 1.0
            display.update(task, description=shown(what), total=total, completed=fraction or 0.0)

        yield show


class _Plain:
    """Progress for logs: few lines, each with elapsed time and ETA."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._shown = -PLAIN_INTERVAL_S
        self._what = ""

    def __call__(self, what: str, fraction: float | None) -> None:
        now = time.monotonic() - self._began
        if what == self._what and now - self._shown < PLAIN_INTERVAL_S:
            return
        self._what, self._shown = what, now
        say(f"[{now:6.1f} s] {what}{_eta(now, fraction)}", err=True)


def _eta(elapsed_s: float, fraction: float | None) -> str:
    if fraction is None:
        return ""
    share = f"  {100 * fraction:.0f} %"
    if fraction < 0.02 or fraction >= 1:
        return share
    return f"{share}, ETA {elapsed_s * (1 - fraction) / fraction:.0f} s"


def _plain(value: Any) -> Any:
    """Turn numpy scalars and paths into what JSON knows."""
    if isinstance(value, Path):
        return str(value)
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(f"{type(value).__name__} is not JSON")


def wrapped(text: str, indent: str = "") -> list[str]:
    """Return the lines of a text no wider than a terminal, those after the first indented."""
    import textwrap

    return textwrap.wrap(text, 80, initial_indent=indent, subsequent_indent=indent + "  ")
