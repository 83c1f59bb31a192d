"""Names of the files of roll-ups: what each says, and the path of a name."""

import re
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta

from spoolscope.traces.rollups import schema

MARKER = "minutes"
"""The table that is written last: a flush without its file in it is not visible."""

MERGED = "merged"
"""First word of the names that ``compact`` gives."""

WINDOWS = "windows-"
"""Beginning of the names of the flight recorder's directories, one for each start."""

HOST_NOTE = "host.json"
"""The host of a flight recorder, beside its traces: others may share the directory of roll-ups."""

MINUTE_S, HOUR_S, DAY_S = 60, 3600, 86_400

_WORD = r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?"
_PATH = re.compile(
    rf"schema=(?P<version>\d+)/(?P<table>[a-z_]+)/host=(?P<host>{_WORD})"
    rf"/date=(?P<day>\d{{4}}-\d\d-\d\d)/(?P<name>{_WORD})\.parquet"
)


@dataclass(frozen=True, order=True)
class Flush:
    """Rows of one host and day that became visible together: one file in each table.

    Attributes:
        host: Name of the host.
        day: UTC date of the rows.
        name: Name of the files without suffix, the same in all tables.
        version: Version of the schema.
    """

    host: str
    day: date
    name: str
    version: int = schema.VERSION

    def __post_init__(self) -> None:
        if not re.fullmatch(_WORD, self.host) or not re.fullmatch(_WORD, self.name):
            raise ValueError(f"{self.host!r} or {self.name!r} cannot be part of a path")

    @property
    def merged(self) -> bool:
        """True if ``compact`` made it of others."""
        return is_merged(self.name)

    def path(self, table: str) -> str:
        """Return the path of its file in a table, from the roll-up directory on."""
        return (
            f"{partition(table, self.version)}/host={self.host}/date={self.day}/{self.name}.parquet"
        )


def partition(table: str, version: int) -> str:
    """Return the path of a table, from the roll-up directory on."""
    return f"schema={version}/{table}"


def is_merged(name: str) -> bool:
    """Return True if ``compact`` gave a flush its name."""
    return name.partition("-")[0] == MERGED


def parsed(path: str) -> tuple[str, Flush] | None:
    """Return the table and flush of a path from the roll-up directory on; None if it has none."""
    match = _PATH.fullmatch(path)
    if match is None or match["table"] not in schema.ROLLUPS:
        return None
    try:
        day = date.fromisoformat(match["day"])
    except ValueError:
        return None
    return match["table"], Flush(match["host"], day, match["name"], int(match["version"]))


def flush_name(recorder_id: str, first_seq: int) -> str:
    """Return the name of a recorder's flush: the same for the same minutes, and no other's.

    The number of its first minute stands for it and not the time, which may be set back.

    Raises:
        ValueError: the recorder's id cannot be part of a name.
    """
    if not re.fullmatch(r"[A-Za-z0-9-]*[A-Za-z0-9]", recorder_id) or recorder_id.startswith(MERGED):
        raise ValueError(f"{recorder_id!r} cannot be the id of a recorder")
    return f"{recorder_id}-{first_seq:08d}"


def day_of(minute_s: int) -> date:
    """Return the UTC date of a time in seconds since the epoch."""
    return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=minute_s)).date()
