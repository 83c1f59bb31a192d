"""The tables of day sums: the roll-ups of hosts, summed by day.

There are two sums of calls in place of one, as a fleet is asked for causes by program and for
the spread of durations, seldom for both at once: apart they are a hundredth of the rows. All
numbers are integers and add up to those of the roll-ups.
"""

from spoolscope.traces.columns import I64, STR, Column, Table
from spoolscope.traces.rollups.schema import CALLS, COMMITS, DIRECTORIES, MINUTES

VERSION = 1
"""Version of these tables. Day sums of another version are made again."""

_HOST = Column("host", STR, "", "Name of the host.")
_DATE = Column("date", STR, "", "Day in UTC, as YYYY-MM-DD.")


def _same(table: Table, *names: str) -> tuple[Column, ...]:
    """Return columns of a table of roll-ups, which mean the same of a day."""
    columns = {column.name: column for column in table.columns}
    return tuple(columns[name] for name in names)


SUMS = Table(
    "sums",
    "calls of one day by program, call and cause",
    (_HOST, _DATE, *_same(CALLS, "dev", "comm", "syscall", "cause", "n", "sum_ns")),
    sorted_by="host",
)

SPREAD = Table(
    "spread",
    "whole calls of one day by their duration",
    (_HOST, _DATE, *_same(CALLS, "dev", "syscall", "bucket"), Column("n", I64, "", "Calls.")),
    sorted_by="host",
)

JOURNAL = Table(
    "journal",
    "journal commits of one day that one program's calls asked for",
    (_HOST, _DATE, *_same(COMMITS, "dev", "comm", "n", "sum_ns", "max_ns")),
    sorted_by="host",
)

PLACES = Table(
    "places",
    "look-ups in one directory in one day",
    (_HOST, _DATE, *_same(DIRECTORIES, "dev", "directory", "n", "sum_ns")),
    sorted_by="host",
)

DAYS = Table(
    "days",
    "one day of one spool: what was seen, what is missing, and under which conditions",
    (
        _HOST,
        _DATE,
        *_same(MINUTES, "dev"),
        Column("minutes", I64, "", "Minutes that are there."),
        Column("holes", I64, "", "Numbered minutes between others of this day that are not there."),
        Column("twice", I64, "", "Minutes that are there more than once."),
        Column("covered_ns", I64, "ns", "Part of the day for which a recorder was on."),
        Column("steps", I64, "", "Minutes in which the wall clock was set by over a second."),
        *_same(MINUTES, "calls", "lost", "recorder_ns", "cpus"),
        Column("changes", I64, "", "Kernels and mount options of the day, less one."),
        Column("fs", STR, "", "Type of the filesystem in the last minute of the day."),
        Column("options", STR, "", "Its mount options then."),
        Column("device", STR, "", "Model of its disk then."),
        Column("kernel", STR, "", "Release of the kernel then."),
        Column("tool", STR, "", "Version of spoolscope then."),
    ),
    sorted_by="host",
)

RUNS = Table(
    "runs",
    "one day of one run of a recorder, whatever spools it recorded",
    (
        _HOST,
        _DATE,
        *_same(MINUTES, "recorder_id"),
        Column("first_seq", I64, "", "Least number of its minutes that are there."),
        Column("last_seq", I64, "", "Largest number; it goes on on the next day."),
        Column("minutes", I64, "", "Minutes that are there."),
        Column("covered_ns", I64, "ns", "What it adds to the part of the day that is covered."),
        Column("steps", I64, "", "Minutes in which the wall clock was set by over a second."),
    ),
    sorted_by="host",
)

DAY_TABLES = {table.name: table for table in (SUMS, SPREAD, JOURNAL, PLACES, RUNS, DAYS)}
SOURCES = {
    "sums": "calls",
    "spread": "calls",
    "journal": "commits",
    "places": "directories",
    "runs": "minutes",
    "days": "minutes",
}
"""Each table of day sums, and the one of the roll-ups that it is made of."""
