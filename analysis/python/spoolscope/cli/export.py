"""spoolscope export: a trace in the formats of other tools."""

from pathlib import Path
from textwrap import wrap

import click

from spoolscope.cli.grid import WIDTH
from spoolscope.cli.names import marked, named, names_lines, names_options
from spoolscope.cli.output import (
    AT_LENGTH_S,
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
from spoolscope.cli.selecting import selected, selection_options
from spoolscope.export.formats import EXPORTERS
from spoolscope.traces.errors import INCOMPLETE
from spoolscope.traces.output import discard, place_of, work_directory
from spoolscope.traces.trace import Trace

MANY_CALLS = 2_000_000
"""Number of calls from which formats with every single call need gigabytes of memory."""


def _formats() -> str:
    """Return the list of formats for the help."""
    lines = ["\b", "Formats:"]
    for name, exporter in EXPORTERS.items():
        lines += wrap(f"  {name:12} {exporter.sentence}", WIDTH - 2, subsequent_indent=" " * 15)
    return "\n".join(
        [
            *lines,
            "",
            "\b",
            "Example:",
            "  spoolscope export mail.trace --to perfetto -o mail.pftrace",
        ]
    )


@click.command("export", epilog=_formats())
@click.argument("trace", type=click.Path(path_type=Path))
@click.option("--to", "name", type=click.Choice(list(EXPORTERS)), required=True, help="Format.")
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), required=True, help="What to write."
)
@force_option
@json_option
@quiet_option
@names_options
@selection_options
def command(
    trace: Path,
    name: str,
    output: Path,
    force: bool,
    as_json: bool,
    quiet: bool,
    names: bool,
    key_file: Path | None,
    only: tuple[str, ...],
    but: tuple[str, ...],
    part: str | None,
) -> int:
    """Write TRACE, or a part of it, in the format of another tool.

    No call is left out or sampled: their times add up to those of 'explain', to the
    nanosecond. Only fio gets what it can repeat: requests, or some calls on files.
    Names are those of the trace; with --names what is written is for its owner only.
    """
    from spoolscope.export.content import prepare

    exporter = EXPORTERS[name]
    opened = named(Trace.open(trace), key_file, wanted=names)
    private = opened.names is not None or not opened.meta.get("pseudonymised")
    with (
        claim_output(output, force=force, inputs=[trace]),
        progress(quiet=quiet, after_s=AT_LENGTH_S) as show,
        opened.connect() as con,
    ):
        place = place_of(output)
        work = work_directory(output)
        try:
            show("splitting the time of calls", None)
            content = prepare(con, opened, selected(only, but, part))
            if exporter.call_by_call and content.n_calls > MANY_CALLS:
                warn(f"{content.n_calls:,} calls, one by one: --slice and --only export a part")
            show(f"writing {name}", None)
            draft = work / place.name
            exporter.write(content, draft)
            if private:
                _keep_private(draft)
            draft.rename(place)
        finally:
            discard(work)
    inexact = content.split.sum_error_ns
    if inexact:
        warn(f"the parts of calls do not add up to their length, by up to {inexact:,} ns")
    opens = exporter.opens.format(output=output)
    if as_json:
        facts = {"output": str(output), "format": name, "calls": content.n_calls}
        facts |= {"latency_ns": content.latency_ns, "sum_error_ns": inexact, "open": opens}
        emit_json(marked(facts, opened))
    else:
        from spoolscope.analysis.wording import duration

        say(f"{content.n_calls:,} calls, {duration(content.latency_ns)} in calls")
        say(*(names_lines(opened, key_file) if opened.names is not None else ()))
        wrote(output)
    say(f"To open it: {opens}", err=True)
    return INCOMPLETE if inexact else 0


def _keep_private(draft: Path) -> None:
    """Make files with real names readable for their owner only."""
    for path in [draft, *(draft.iterdir() if draft.is_dir() else ())]:
        path.chmod(0o700 if path.is_dir() else 0o600)
