"""The verb fleet: answers from the roll-ups of many hosts."""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

import click

from spoolscope.cli.output import (
    claim_output,
    emit_json,
    force_option,
    json_option,
    progress,
    quiet_option,
    warn,
    wrote,
)
from spoolscope.cli.printing import say
from spoolscope.traces.errors import INCOMPLETE, USAGE, SpoolscopeError
from spoolscope.traces.phases import Progress

if TYPE_CHECKING:
    from spoolscope.analysis.fleet.engines import Engine
    from spoolscope.analysis.fleet.sources import Source

EPILOG = """\b
Examples:
  spoolscope fleet report /srv/rollups
  spoolscope fleet report s3://mail-rollups -o fleet.html
  spoolscope fleet report /srv/rollups --before-after kernel
  spoolscope fleet report /srv/rollups --host mail17 --date 2026-11-20
"""
DAYS_EPILOG = """\b
Examples:
  spoolscope fleet days /srv/rollups
  spoolscope fleet days s3://mail-rollups
"""

where_argument = click.argument("where", metavar="DIR")
engine_option = click.option(
    "--engine",
    "engine_name",
    default="duckdb",
    show_default=True,
    metavar="ENGINE",
    help="duckdb, or Spark: local[2], spark://HOST:7077, or sc://HOST:15002 (Connect).",
)


@click.group("fleet")
def command() -> None:
    """Answer for many hosts, from their roll-ups in one directory or bucket.

    Recorders write roll-ups with 'record --rollup'. DIR is a directory, or
    s3://BUCKET/PREFIX.
    """


@command.command("report", epilog=EPILOG)
@where_argument
@click.option("-o", "--output", type=click.Path(path_type=Path), help="HTML file to write.")
@click.option(
    "--before-after",
    metavar="WHAT",
    help="Compare each host with itself: kernel, options, or a day as YYYY-MM-DD.",
)
@click.option("--host", help="Show one host: causes by day, costliest calls, frozen traces.")
@click.option("--date", help="With --host: the calls of this day alone, as YYYY-MM-DD.")
@engine_option
@force_option
@json_option
@quiet_option
def report(
    where: str,
    output: Path | None,
    before_after: str | None,
    host: str | None,
    date: str | None,
    engine_name: str,
    force: bool,
    as_json: bool,
    quiet: bool,
) -> int:
    """Say what a fleet's calls wait for, and which hosts differ.

    Hosts are held against peers: the same type of filesystem and a similar
    load. With --before-after those that changed are held against themselves,
    and against those that did not.

    Exit code 3: something is missing; the answer states it.
    """
    _check(output, before_after, host, date)
    _check_engine(engine_name)
    if host is not None:
        return _host(where, host, date, engine_name, as_json=as_json, quiet=quiet)
    from spoolscope.analysis.fleet.facts import facts
    from spoolscope.analysis.fleet.fleet_answer import asked
    from spoolscope.analysis.fleet.fleet_words import is_whole
    from spoolscope.cli.fleet_text import answer_lines

    claimed = claim_output(output, force=force) if output else nullcontext()
    with claimed, progress(quiet=quiet) as show:
        with _source(where, engine_name, show) as (source, engine):
            answer = asked(source, engine, before_after, show)
        if output is not None:
            from spoolscope.report.fleet_page import write_fleet_page

            show("Writing the report", None)
            write_fleet_page(answer, output)
    if as_json:
        emit_json(facts(answer))
    else:
        say(*answer_lines(answer))
        if output is not None:
            wrote(output)
    return 0 if is_whole(answer) else INCOMPLETE


def _host(
    where: str, host: str, date: str | None, engine_name: str, *, as_json: bool, quiet: bool
) -> int:
    """Print what is known of one host."""
    from spoolscope.analysis.fleet.drill import drilled
    from spoolscope.analysis.fleet.facts import drilled_facts
    from spoolscope.cli.fleet_text import host_lines

    with (
        progress(quiet=quiet) as show,
        _source(where, engine_name, show) as (source, engine),
    ):
        found = drilled(source, engine, host, date)
    if as_json:
        emit_json({**drilled_facts(found), "problems": list(source.problems)})
    else:
        say(*host_lines(found))
    for problem in source.problems:
        warn(problem)
    return INCOMPLETE if source.problems else 0


@command.command("days", epilog=DAYS_EPILOG)
@where_argument
@engine_option
@json_option
@quiet_option
def days(where: str, engine_name: str, as_json: bool, quiet: bool) -> int:
    """Sum the roll-ups by day, so that a report of many hosts takes seconds.

    The sums are kept in DIR, below days=1. Only days whose roll-ups have
    changed are summed again. Every file is checked; what is damaged is left
    out, and named.

    Exit code 3: something was left out.
    """
    with progress(quiet=quiet) as show, _started(engine_name) as engine:
        from spoolscope.analysis.fleet.day_sums import sum_days

        done = sum_days(where, engine, show)
    if as_json:
        emit_json(vars(done))
    else:
        from spoolscope.analysis.wording import count, counted, size

        say(
            f"{counted(len(done.dates), 'day')} summed ({size(done.bytes)}), "
            f"{count(done.kept)} had not changed."
        )
        say(f"Next: spoolscope fleet report {where}")
    for problem in done.problems:
        warn(problem)
    return INCOMPLETE if done.problems else 0


def _check(
    output: Path | None, before_after: str | None, host: str | None, date: str | None
) -> None:
    if host is None and date is not None:
        raise SpoolscopeError("--date is of one host", remedy="add --host NAME", exit_code=USAGE)
    if host is not None and (output is not None or before_after is not None):
        raise SpoolscopeError(
            "--host shows one host in the terminal",
            remedy="leave out -o and --before-after",
            exit_code=USAGE,
        )


def _check_engine(name: str) -> None:
    """Refuse an engine without its packages, before a module is imported that needs them."""
    from spoolscope.analysis.fleet.engines import check_engine

    check_engine(name)


@contextmanager
def _source(where: str, engine_name: str, show: Progress) -> "Iterator[tuple[Source, Engine]]":
    """Start an engine and open the tables of a fleet."""
    from spoolscope.analysis.fleet.sources import opened

    with _started(engine_name) as engine:
        show("Opening the roll-ups", None)
        yield opened(where, engine), engine


@contextmanager
def _started(name: str) -> "Iterator[Engine]":
    """Start an engine, and end it."""
    from spoolscope.analysis.fleet.engines import engine

    started = engine(name)
    try:
        yield started
    finally:
        started.close()
