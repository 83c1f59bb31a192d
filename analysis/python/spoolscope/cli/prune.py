"""The verb prune: retention of roll-ups."""

from pathlib import Path

import click

from spoolscope.analysis.wording import size
from spoolscope.cli.limits import Days, Size
from spoolscope.cli.output import emit_json, json_option, warn
from spoolscope.cli.printing import say
from spoolscope.traces.errors import INCOMPLETE, USAGE, SpoolscopeError
from spoolscope.traces.rollups.retention import AGE, Retained, retain

EPILOG = """\b
Examples:
  sudo spoolscope prune /var/lib/spoolscope/rollups --retain 90d --quota 2G
  spoolscope prune rollups --quota 500M --dry-run
"""


@click.command("prune", epilog=EPILOG)
@click.argument("directory", type=click.Path(path_type=Path))
@click.option("--retain", "days", type=Days(), help="Remove days that are older: 90d.")
@click.option("--quota", type=Size(), help="Then the oldest days, until the rest is no more: 2G.")
@click.option("--host", "hosts", multiple=True, help="Only of this host; may be repeated.")
@click.option("-n", "--dry-run", is_flag=True, help="Only say what would be removed.")
@json_option
def command(
    directory: Path,
    days: int | None,
    quota: int | None,
    hosts: tuple[str, ...],
    dry_run: bool,
    as_json: bool,
) -> int:
    """Remove the oldest days from a DIRECTORY of roll-ups.

    Days go as a whole, in UTC; the current one never does. If all days but the
    current one were too old, none is removed by age: the clock may be wrong.
    """
    if days is None and quota is None:
        raise SpoolscopeError(
            "no limit given", remedy="give --retain 90d, --quota 2G or both", exit_code=USAGE
        )
    done = retain(directory, days=days, quota_bytes=quota, hosts=hosts or None, dry_run=dry_run)
    if done.refused:
        warn(f"nothing is removed by age: {done.refused}")
    too_large = quota is not None and done.left_bytes > quota
    if too_large:
        warn("the current day alone is larger than the quota; it stays")
    if as_json:
        emit_json(_facts(done, dry_run=dry_run))
    else:
        say(*lines(done, dry_run=dry_run))
    return INCOMPLETE if done.refused or too_large else 0


def lines(done: Retained, *, dry_run: bool = False) -> list[str]:
    """Return what was removed, a line for each day, and the sum."""
    verb = "Would remove" if dry_run else "Removed"
    found = [
        f"{verb} {day} of {host}: {'too old' if why == AGE else 'over the quota'}"
        for host, day, why in done.removed
    ]
    files = f"{done.files:,} files, {size(done.n_bytes)}"
    return [*found, f"{verb} {files}; {size(done.left_bytes)} are left"]


def _facts(done: Retained, *, dry_run: bool) -> dict[str, object]:
    return {
        "removed": [
            {"host": host, "date": str(day), "why": why} for host, day, why in done.removed
        ],
        "files": done.files,
        "bytes": done.n_bytes,
        "left_bytes": done.left_bytes,
        "refused": done.refused,
        "dry_run": dry_run,
    }
