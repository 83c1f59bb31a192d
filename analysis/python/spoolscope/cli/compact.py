"""The verb compact."""

from datetime import UTC, date, datetime, timedelta

import click

from spoolscope.analysis.wording import size
from spoolscope.cli.gaps import DAY, day, hosts_option
from spoolscope.cli.limits import Days
from spoolscope.cli.output import emit_json, json_option, progress, quiet_option, warn
from spoolscope.cli.printing import say
from spoolscope.traces.errors import INCOMPLETE
from spoolscope.traces.rollups.names import MARKER

EPILOG = """\b
Examples:
  spoolscope compact /var/lib/spoolscope/rollups
  spoolscope compact s3://mails/fleet --until 2026-03-01 --host mail1
"""
BY_HOUR = "--by-hour"
LEFT_ALONE_S = 900
"""Age from which a flush is merged while recorders write: exporters have read it by then."""


@click.command("compact", epilog=EPILOG)
@click.argument("directory")
@hosts_option
@click.option(
    "--until",
    type=DAY,
    callback=day,
    help="Last UTC day; without it, yesterday (--unmerged: today).",
)
@click.option(
    "--unmerged",
    is_flag=True,
    help="Merge only files of yesterday and today that are not merged yet and at least "
    f"{LEFT_ALONE_S // 60} minutes old. Recorders do so once an hour.",
)
@click.option(
    BY_HOUR,
    type=Days(),
    help="Sum each hour up of days that are older: 30d. A tenth or less is left, and quantiles "
    "of an hour stay; what was in which minute is lost.",
)
@quiet_option
@json_option
def command(
    directory: str,
    hosts: tuple[str, ...],
    until: date | None,
    unmerged: bool,
    by_hour: int | None,
    quiet: bool,
    as_json: bool,
) -> int:
    """Merge the roll-ups of each host and day into one file for each table.

    DIRECTORY is local, or s3://BUCKET/PREFIX. Rows whose keys are equal are
    added up; no sum changes. It may be stopped at any moment: readers count
    each row once, and the next run finishes. To run it again does nothing.
    """
    from spoolscope.traces.rollups.compaction import Compaction, compact

    today = datetime.now(UTC).date()
    yesterday = today - timedelta(days=1)
    last = until or (today if unmerged else yesterday)
    chosen, done = hosts or None, Compaction()
    with progress(quiet=quiet, after_s=1) as show:
        if by_hour is not None:  # before they would be merged by the minute
            old = min(last, today - timedelta(days=by_hour + 1))
            done.add(compact(directory, until=old, hosts=chosen, by_hour=True, progress=show))
        if unmerged:
            newest = compact(
                directory,
                since=yesterday,
                until=last,
                hosts=chosen,
                left_alone_s=LEFT_ALONE_S,
                progress=show,
            )
            done.add(newest)
        else:
            done.add(compact(directory, until=last, hosts=chosen, progress=show))
    for flush, why in done.damaged.items():
        warn(f"{flush.path(MARKER)} is left as it is: {why}")
    if as_json:
        damaged = {flush.path(MARKER): why for flush, why in done.damaged.items()}
        emit_json({**vars(done), "damaged": damaged})
    elif done.days:
        say(
            f"{done.flushes:,} flushes merged into {done.days:,}, one for each host and day",
            f"{size(done.bytes_after)} for {size(done.bytes_before)}, "
            f"{done.rows_after:,} rows for {done.rows_before:,}; {done.removed:,} files removed",
        )
    else:
        say(f"Nothing to merge up to {last}; {done.removed:,} files removed")
    return INCOMPLETE if done.damaged else 0
