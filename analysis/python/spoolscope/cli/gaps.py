"""The verb gaps, and the lines on coverage that other verbs of roll-ups print, too."""

from dataclasses import asdict
from datetime import UTC, date, datetime
from typing import Any

import click

from spoolscope.analysis.wording import percent
from spoolscope.cli.output import emit_json, json_option, progress, quiet_option, wrapped
from spoolscope.cli.printing import say
from spoolscope.traces.errors import INCOMPLETE
from spoolscope.traces.rollups.coverage import Coverage, examine, with_absent
from spoolscope.traces.rollups.files import Rollups
from spoolscope.traces.rollups.minutes import HostCoverage

EPILOG = """\b
Examples:
  spoolscope gaps rollups
  spoolscope gaps s3://mails/fleet --since 2026-03-01 --host mail1
  spoolscope gaps rollups --deep --json
"""


def day(_context: click.Context, _option: click.Parameter, given: datetime | None) -> date | None:
    """Return the day of an option, which click parses as a time."""
    return None if given is None else given.date()


DAY = click.DateTime(["%Y-%m-%d"])
hosts_option = click.option(
    "--host", "hosts", multiple=True, metavar="HOST", help="Only this host; may be repeated."
)


@click.command("gaps", epilog=EPILOG)
@click.argument("directory")
@hosts_option
@click.option("--since", type=DAY, callback=day, help="Only from this UTC day on.")
@click.option("--until", type=DAY, callback=day, help="Only to this UTC day, itself included.")
@click.option("--deep", is_flag=True, help="Read all files: check every byte, and the sums.")
@quiet_option
@json_option
def command(
    directory: str,
    hosts: tuple[str, ...],
    since: date | None,
    until: date | None,
    deep: bool,
    quiet: bool,
    as_json: bool,
) -> int:
    """Show what roll-ups cover, what is missing, and what is damaged.

    DIRECTORY is that of 'record --rollup', one with the roll-ups of many hosts,
    or s3://BUCKET/PREFIX. Exit code 3 if numbers from it lack something, or a
    host has no minute: one that is named, or one that has days before --since.
    """
    rollups = Rollups(directory, hosts=hosts or None, since=since, until=until)
    with progress(quiet=quiet, after_s=1) as show:
        found = with_absent(examine(rollups, deep=deep, progress=show), hosts, since)
    if as_json:
        emit_json(coverage_facts(found))
    else:
        say(*_host_lines(found.hosts), *coverage_lines(found))
    return 0 if found.complete else INCOMPLETE


def coverage_facts(coverage: Coverage) -> dict[str, Any]:
    """Return coverage as JSON has it."""
    return {
        "complete": coverage.complete,
        "hosts": [asdict(host) | {"share": host.share} for host in coverage.hosts],
        "findings": [asdict(finding) for finding in coverage.findings],
    }


def coverage_lines(coverage: Coverage) -> list[str]:
    """Return the findings, each with examples; empty if there are none."""
    lines = []
    for finding in coverage.findings:
        lines += wrapped(finding.sentence)
        lines += [line for example in finding.examples for line in wrapped(example, "    ")]
        if finding.n_named > len(finding.examples):
            lines.append(f"    and {finding.n_named - len(finding.examples):,} more")
    return lines


def _host_lines(hosts: tuple[HostCoverage, ...]) -> list[str]:
    if not hosts:
        return []
    width = max(4, *(len(host.host) for host in hosts))
    lines = [f"{'host':<{width}}  {'from (UTC)':<16}  {'to':<16}  covered  {'calls':>15}"]
    lines += [
        f"{host.host:<{width}}  {_time(host.first_s)}  {_time(host.last_s)}"
        f"  {percent(host.share):>7}  {host.calls:>15,}"
        for host in hosts
    ]
    return lines


def _time(at_s: int) -> str:
    return datetime.fromtimestamp(at_s, UTC).strftime("%Y-%m-%d %H:%M")
