"""The verb report: one self-contained HTML file."""

from functools import partial
from pathlib import Path

import click

from spoolscope.cli.names import marked, named, names_lines, names_options
from spoolscope.cli.output import (
    claim_output,
    emit_json,
    force_option,
    json_option,
    progress,
    quiet_option,
    replayed_trace_option,
    wrapped,
    wrote,
)
from spoolscope.cli.printing import say
from spoolscope.traces.errors import USAGE, SpoolscopeError


@click.command("report", epilog="Example: spoolscope report mail.trace -o mail.html")
@click.argument(
    "inputs", metavar="INPUT...", nargs=-1, required=True, type=click.Path(path_type=Path)
)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    default=Path("report.html"),
    show_default=True,
    help="File to write.",
)
@click.option("--reference", help="Candidate to hold the others against.")
@force_option
@json_option
@quiet_option
@replayed_trace_option
@names_options
def command(
    inputs: tuple[Path, ...],
    output: Path,
    force: bool,
    as_json: bool,
    quiet: bool,
    reference: str | None,
    trace: Path | None,
    names: bool,
    key_file: Path | None,
) -> None:
    """Write an HTML report of INPUT: a trace, two to compare, or replays of one.

    The file opens without a network: figures, data and code are inside it.
    """
    from spoolscope.report.build import build

    if output.is_dir() or not output.parent.is_dir():
        raise SpoolscopeError(
            f"cannot write a file {output}", remedy="give -o FILE.html", exit_code=USAGE
        )
    claimed = claim_output(output, force=force, inputs=inputs)
    with claimed, progress(quiet=quiet) as show:
        real = partial(named, key_file=key_file, wanted=names)
        report = build(inputs, output, show, trace, real, reference)
    if as_json:
        facts = {
            "report": str(report.path),
            "bytes": report.bytes,
            "figures": len(report.page.figures),
            "headline": report.page.headline,
            "word": report.page.badge,
            "problems": list(report.page.problems),
        }
        emit_json(marked(facts, report.trace) if report.trace else facts)
    else:
        say(*wrapped(report.page.headline), *wrapped(report.page.sure))
        for line in names_lines(report.trace, key_file) if report.trace else ():
            say(line)
        wrote(report.path, report.page.next_command)
