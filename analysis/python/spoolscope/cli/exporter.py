"""The verb exporter: roll-ups for Prometheus, node_exporter and OpenTelemetry."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from importlib.resources import files
from pathlib import Path

import click

from spoolscope.cli.limits import Number
from spoolscope.cli.output import claim_output, force_option, quiet_option, warn, wrote
from spoolscope.cli.printing import say
from spoolscope.traces.errors import USAGE, SpoolscopeError
from spoolscope.traces.files import write_file
from spoolscope.traces.output import place_of

LISTEN = "127.0.0.1:9766"
PROGRAMS = 20
DASHBOARD, RULES = "dashboard.json", "rules.yml"

EPILOG = """\b
Examples:
  spoolscope exporter /var/lib/spoolscope/rollups
  spoolscope exporter rollups --textfile /var/lib/node_exporter/spool.prom
  spoolscope exporter rollups --otlp http://127.0.0.1:4318
  spoolscope exporter rollups --once
  spoolscope exporter --write-rules rules.yml --write-dashboard spool.json
"""


@click.command("exporter", epilog=EPILOG)
@click.argument("directory", required=False, type=click.Path(path_type=Path))
@click.option(
    "--listen",
    metavar="IP:PORT",
    help=f"Where /metrics is served; {LISTEN}, if no other way is named.",
)
@click.option(
    "--textfile",
    type=click.Path(path_type=Path),
    help="File in the directory of node_exporter's textfile collector; ends in .prom.",
)
@click.option("--otlp", metavar="URL", help="Push to this OTLP/HTTP receiver once a minute.")
@click.option("--host", help="The host, if the directory has several.")
@click.option(
    "--programs",
    type=Number(0, 1000),
    default=PROGRAMS,
    show_default=True,
    help="Most programs with a label; the others are summed as 'other'.",
)
@click.option("--once", is_flag=True, help="Print what is there as OpenMetrics, and end.")
@click.option(
    "--write-dashboard",
    type=click.Path(path_type=Path),
    help="Write the dashboard for Grafana, JSON.",
)
@click.option(
    "--write-rules",
    type=click.Path(path_type=Path),
    help="Write alert and recording rules for Prometheus, YAML.",
)
@force_option
@quiet_option
def command(
    directory: Path | None,
    listen: str | None,
    textfile: Path | None,
    otlp: str | None,
    host: str | None,
    programs: int,
    once: bool,
    write_dashboard: Path | None,
    write_rules: Path | None,
    force: bool,
    quiet: bool,
) -> None:
    """Make metrics of the roll-ups in DIRECTORY, until it is ended.

    Counters begin at zero with the exporter, and never go back while it runs. A
    minute counts when its roll-up has come: some seconds after its end. DIRECTORY is
    that of 'spoolscope record --rollup'; reading it needs no root.
    """
    for name, output in ((DASHBOARD, write_dashboard), (RULES, write_rules)):
        if output is not None:
            _write(name, output, force=force)
    if directory is None:
        if write_dashboard or write_rules:
            return
        raise SpoolscopeError(
            "no directory given", remedy="see 'spoolscope exporter --help'", exit_code=USAGE
        )
    if once:
        _print(directory, host, programs)
        return
    _run(directory, host, programs, (listen, textfile, otlp), quiet=quiet)


def _write(name: str, output: Path, *, force: bool) -> None:
    with claim_output(output, force=force):
        write_file(place_of(output), (files("spoolscope.exporter") / name).read_bytes())
    wrote(output)


def _print(directory: Path, host: str | None, programs: int) -> None:
    from spoolscope.exporter.follower import Follower
    from spoolscope.exporter.handing_on import take_outcomes
    from spoolscope.exporter.minute_sums import MinuteSums
    from spoolscope.exporter.rendering import OPENMETRICS, rendered

    follower, sums = Follower(directory, host, warn), MinuteSums(programs)
    sums.add(follower.all())
    take_outcomes(sums, follower)
    say(*rendered(sums, OPENMETRICS).rstrip("\n").split("\n"))


def _run(
    directory: Path,
    host: str | None,
    programs: int,
    wanted: tuple[str | None, Path | None, str | None],
    *,
    quiet: bool,
) -> None:
    from spoolscope.exporter.follower import Follower
    from spoolscope.exporter.handing_on import POLL_S, Running, Ways
    from spoolscope.exporter.otlp_push import checked_url
    from spoolscope.exporter.scraped import PATH, Page, serving

    listen, textfile, otlp = wanted
    if listen is None and textfile is None and otlp is None:
        listen = LISTEN
    page = Page()
    ways = Ways(
        page if listen else None,
        _textfile(textfile) if textfile else None,
        checked_url(otlp) if otlp else None,
    )
    follower = Follower(directory, host, warn)
    with _ending() as ended, serving(listen, page) if listen else nullcontext(0) as port:
        running = Running(follower, programs, ways, warn)
        if not quiet:
            if listen:
                say(f"Serving http://{listen.rpartition(':')[0]}:{port}{PATH}", err=True)
            say(f"Roll-ups of {follower.host or 'no host yet'} in {directory}", err=True)
        while not ended.wait(POLL_S):
            running.look()


def _textfile(path: Path) -> Path:
    """Return a checked name of a textfile: node_exporter reads only those that end in .prom."""
    if path.suffix != ".prom":
        raise SpoolscopeError(
            f"{path} does not end in .prom, so node_exporter would not read it",
            remedy="give --textfile DIRECTORY/spoolscope.prom",
            exit_code=USAGE,
        )
    return place_of(path)


@contextmanager
def _ending() -> Iterator[threading.Event]:
    """Yield an event that SIGINT and SIGTERM set."""
    ended = threading.Event()
    before = {
        number: signal.signal(number, lambda *_: ended.set())
        for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        yield ended
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
