"""The spoolscope command: finds the verb, prints errors, sets the exit code."""

import errno
import importlib
import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from difflib import get_close_matches
from keyword import iskeyword
from typing import Any, NoReturn

import click

from spoolscope.cli.manual.pages import examples_first
from spoolscope.cli.no_pandas import hide_pandas
from spoolscope.cli.printing import NoReaderError, say
from spoolscope.replay.interrupts import ending_on_signals
from spoolscope.traces import unfinished
from spoolscope.traces.errors import ERROR, USAGE, SpoolscopeError

TRACEBACK = "SPOOLSCOPE_TRACEBACK"
USABLE = "see that it exists and may be used"
MINE = "use sudo, or make it yours: sudo chown -R USER PATH"
REMEDIES = {
    errno.ENOSPC: "free space, or give another -o or --work",
    errno.EROFS: "give another place, as with -o",
    errno.EACCES: MINE,
    errno.EPERM: MINE,
}
"""By error of the operating system; ``USABLE`` is for the others."""
INTERRUPTED = ("interrupted", "run the command again")
INTERRUPTED_QUERY = "Query interrupted"
"""DuckDB raises it, with RuntimeError, in place of KeyboardInterrupt."""
BLAS_THREADS = "OPENBLAS_NUM_THREADS"
EPILOG = """\b
Examples:
  sudo spoolscope doctor
  sudo spoolscope record --spool /var/mail -d 60s -o monday.trace
  spoolscope explain monday.trace --blame
  sudo spoolscope replay monday.trace --on ext4 --on xfs --rounds 5 -o both
  spoolscope report both -o both.html

'spoolscope help' explains concepts. Exit codes: 0 ok, 1 error, 2 usage, 3
finished but incomplete or diverged, 4 what --fail-if names is so, 5 it is
undecided.
"""
# Name and help in one place: verbs are imported only when used, so that --help stays fast.
VERBS = {
    "doctor": "Say what this machine can trace, and why not.",
    "record": "Record the system calls on a mail spool.",
    "top": "Show which programs (--deep: processes) use the spool now.",
    "import": "Make a trace of what strace, blktrace or ftrace recorded.",
    "freeze": "Keep the last window of a flight recorder as a trace.",
    "info": "Show what a trace holds: duration, counts, loss.",
    "scrub": "Copy a trace with its names hidden.",
    "explain": "Split every call's time by cause.",
    "query": "Ask a trace in SQL: its tables, and what is derived.",
    "export": "Write a trace for Perfetto, speedscope, Prometheus, SQL.",
    "plan": "Show what a replay would do, and why a call waits.",
    "candidates": "List what a replay can run on, and how it is made.",
    "replay": "Re-execute a trace on candidate filesystems.",
    "compare": "Say what is faster, by how much, why: replays, or recordings.",
    "validate": "Hold replays against recordings: does the ranking hold?",
    "report": "Write one self-contained HTML report.",
    "fleet": "Answer for many hosts, from their roll-ups.",
    "clean": "Remove what killed commands have left.",
    "gaps": "Show what roll-ups cover, lack, and what is damaged.",
    "compact": "Merge the roll-ups of each day into one file a table.",
    "upload": "Send roll-ups to object storage or another directory.",
    "exporter": "Make metrics of roll-ups: Prometheus, textfile, OTLP; alert rules.",
    "prune": "Remove the oldest days of roll-ups, by age or size.",
    "lab": "Try known troubles and published loads on this machine.",
    "help": "Explain a concept: causes, fidelity, pace, order, pseudonyms.",
    "completion": "Print the completion script of bash, zsh or fish.",
}


@contextmanager
def _one_blas_thread() -> Iterator[None]:
    """Keep OpenBLAS, which comes with numpy, from starting a spinning thread on every CPU.

    It reads the variable when it is loaded; the environment of recorded commands is not changed.
    """
    if BLAS_THREADS in os.environ:
        yield
        return
    os.environ[BLAS_THREADS] = "1"
    try:
        yield
    finally:
        del os.environ[BLAS_THREADS]


class VerbGroup(click.Group):
    """A group whose commands are the modules ``spoolscope.cli.<verb>``."""

    def list_commands(self, _ctx: click.Context) -> list[str]:
        """Return the verbs in the order in which they are used."""
        return list(VERBS)

    def get_command(self, _ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return a verb's command."""
        if cmd_name not in VERBS:
            return None
        name = f"{cmd_name}_" if iskeyword(cmd_name) else cmd_name
        with _one_blas_thread():
            module = importlib.import_module(f"spoolscope.cli.{name}")
        command: click.Command = module.command
        return examples_first(command)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the verb; for a mistyped one suggest the most similar verb."""
        near = get_close_matches(args[0], VERBS, 1)
        if args[0] not in VERBS and near and not args[0].startswith("-"):
            raise SpoolscopeError(
                f"no verb '{args[0]}'", remedy=f"did you mean '{near[0]}'?", exit_code=USAGE
            )
        return super().resolve_command(ctx, args)

    def format_commands(self, _ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the verbs without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl(list(VERBS.items()))


SILENT = ("clean", "completion", "help")
"""Verbs that do not warn of leftovers: one removes them, the others print texts."""


@click.group(
    cls=VerbGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 80},
    epilog=EPILOG,
)
@click.version_option(
    package_name="spoolscope", prog_name="spoolscope", message="%(prog)s %(version)s"
)
@click.pass_context
def group(context: click.Context) -> None:
    """Record a mail spool, replay it on other filesystems, explain the time."""
    if context.invoked_subcommand not in SILENT and unfinished.left():
        from spoolscope.cli.clean import warn_of_left

        warn_of_left()


examples_first(group)


def main(arguments: list[str] | None = None) -> NoReturn:
    """Run the command line and exit with its code; the only place that prints errors."""
    if arguments is None and sys.argv[1:2] != ["fleet"]:
        hide_pandas()
    _make_streams_usable()
    with ending_on_signals():
        code = _run(arguments)
    sys.exit(code)


def _make_streams_usable() -> None:
    """Make every name printable, and let no file get the number of a closed stream."""
    for number in range(3):
        with suppress(OSError):
            os.fstat(number)
            continue
        os.open(os.devnull, os.O_RDWR)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _run(arguments: list[str] | None) -> int:
    try:
        result: Any = group.main(args=arguments, prog_name="spoolscope", standalone_mode=False)
        if sys.stdout is not None:
            sys.stdout.flush()
    except SpoolscopeError as error:
        if error.said:
            say(*error.said, err=True)
        return _fail(error.message, error.remedy, error.exit_code)
    except click.exceptions.NoArgsIsHelpError as error:
        # A group of verbs alone: its help, laid out as --help does.
        say(*error.format_message().split("\n"), err=True)
        return error.exit_code
    except click.ClickException as error:
        return _usage(error)
    except (KeyboardInterrupt, click.Abort):
        return _fail(*INTERRUPTED, ERROR)
    except (NoReaderError, BrokenPipeError):
        _drop_stdout()
        return 0
    except OSError as error:
        name = f"{error.filename}: " if error.filename else ""
        remedy = REMEDIES.get(error.errno or 0, USABLE)
        return _fail(f"{name}{error.strerror or error}", remedy, ERROR)
    except Exception as error:
        if isinstance(error, RuntimeError) and INTERRUPTED_QUERY in str(error):
            return _fail(*INTERRUPTED, ERROR)
        # The last resort: inputs may be damaged in unforeseen ways.
        if TRACEBACK in os.environ:
            import traceback  # most commands never need it

            say(*traceback.format_exc().splitlines(), err=True)
        shown = " ".join(f"{type(error).__name__}: {error}".split())
        return _fail(
            shown, f"the input is damaged, or spoolscope is: {TRACEBACK}=1 tells where", ERROR
        )
    return result if isinstance(result, int) else 0


def _drop_stdout() -> None:
    """Suppress errors of the interpreter's last flush: the reader, e.g. head, has ended."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _fail(message: str, remedy: str, code: int) -> int:
    say(f"spoolscope: error: {message}; {remedy}", err=True)
    return code


def _usage(error: click.ClickException) -> int:
    command = "spoolscope"
    if isinstance(error, click.UsageError) and error.ctx is not None:
        command = error.ctx.command_path
    message = " ".join(error.format_message().split()).rstrip(".")
    if near := getattr(error, "possibilities", None):  # of an option or a verb of a group
        message = error.message.rstrip(".")
        names = " or ".join(f"'{name}'" for name in sorted(near))
        remedy = f"did you mean {names}?"
    elif message.endswith((" is not readable", " is not writable")):
        remedy = MINE
    else:
        remedy = f"see '{command} --help'"
    return _fail(message, remedy, error.exit_code)


if __name__ == "__main__":
    main()
