"""Reader of the roll-ups that come into a directory: each flush once, whatever happens to it."""

import os
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa

from spoolscope.traces.errors import USAGE, SpoolscopeError
from spoolscope.traces.rollups.coverage import examine
from spoolscope.traces.rollups.files import Rollups, as_schema
from spoolscope.traces.rollups.names import MARKER, Flush, parsed, partition
from spoolscope.traces.rollups.places import place
from spoolscope.traces.rollups.schema import ROLLUPS, VERSION
from spoolscope.traces.rollups.sealed import DamagedError, contents_of, decoded, minutes_of

DAYS_BACK = 1
"""Days before today in which a flush is new: those that came late, over midnight."""
REMEMBERED = 8
"""Days before these of which the flushes are remembered, as the clock may be set back to them."""
RECENT = 60
"""Flushes that are read when the exporter begins, for the names of devices and programs."""

NAMED = 3
"""Most hosts that a message names."""

Tables = dict[str, pa.Table]


class Follower:
    """The flushes of one host.

    Attributes:
        readable: False while the directory is missing or cannot be read.
        outcomes: Flushes since the start by what they were: READ, REFUSED or NEWER.
    """

    def __init__(self, root: Path, host: str | None, warn: Callable[[str], None]) -> None:
        """Prepare to read.

        Args:
            root: The roll-up directory.
            host: The host; None: the only one that is there.
            warn: Function that prints one line.

        Raises:
            SpoolscopeError: it is no directory, or has several hosts.
        """
        if not root.is_dir():
            raise SpoolscopeError(
                f"{root} is no directory",
                remedy="give the directory of 'spoolscope record --rollup'",
                exit_code=USAGE,
            )
        self.root, self.host, self._warn = root, host, warn
        self._place = place(root)
        self.readable = True
        self.outcomes: Counter[str] = Counter()
        self._seen: dict[str, set[str]] = {}  # by day, the one that was added to last at the end
        self._refused: dict[Path, tuple[int, int]] = {}
        self._of_newer: set[Path] = set()
        if (hosts := self._hosts()) and host is not None and host not in hosts:
            warn(f"{root} has no roll-ups of {host} yet, but of {', '.join(hosts[:NAMED])}")
        self._choose_host()

    def recent(self) -> Iterator[Tables]:
        """Yield the newest flushes; all that are there count as seen."""
        there = self._markers(self._first_remembered())
        for marker in sorted(there, key=_day):
            self._remember(marker)
        since = _since()
        for marker in [marker for marker in there if _day(marker) >= since][-RECENT:]:
            tables = self._read(marker)
            if tables is not None:
                yield tables
        self.outcomes.clear()

    def all(self) -> Tables:
        """Return the rows of all days that are there, merged ones too, without damaged flushes."""
        rollups = Rollups(self.root, hosts=None if self.host is None else [self.host])
        covered = examine(rollups, deep=True)
        for finding in covered.findings:
            if finding.kind == "damaged":
                self.outcomes["refused"] += finding.n
                self._warn(f"{finding.sentence} The first: {finding.examples[0]}")
        self._note_newer("")
        self.outcomes["read"] += len(covered.sound.flushes)
        return {name: filled(covered.sound.read(name), name) for name in ROLLUPS}

    def new(self) -> Iterator[Tables]:
        """Yield the flushes that came since the last time."""
        since = _since()
        # Only days that are over are forgotten: a directory that is gone may come back.
        for day in [day for day in self._seen if day < since][:-REMEMBERED]:
            del self._seen[day]
        for marker in self._markers(since):
            tables = self._read(marker)
            if tables is not None:
                self._remember(marker)
                yield tables

    def _remember(self, marker: Path) -> None:
        day = _day(marker)
        self._seen[day] = self._seen.pop(day, set())
        self._seen[day].add(str(marker))

    def _first_remembered(self) -> str:
        """Return the day from which on all that is there is no news, whatever the clock is."""
        days = [] if self.host is None else sorted({day.name for day in self._days(self.host)})
        return min([_since(), *days[-REMEMBERED:]])

    def _markers(self, since: str) -> list[Path]:
        """Return the last files of flushes that are not seen, in the order in which they came.

        Args:
            since: Name of the directory of the first day.
        """
        found: list[tuple[int, Path]] = []
        try:
            if not self.root.is_dir():
                raise FileNotFoundError(f"{self.root} is gone")
            self._choose_host()
            if self.host is not None:
                for day in self._days(self.host):
                    if day.name >= since:
                        found += self._in_day(day)
            self._note_newer(since)
        except OSError as error:
            if self.readable:
                self._warn(f"{error}; the counters stand still until it can be read")
            self.readable = False
            return []
        if not self.readable:
            self._warn(f"{self.root} can be read again")
        self.readable = True
        return [path for _, path in sorted(found)]

    def _days(self, host: str) -> Iterator[Path]:
        for version in range(1, VERSION + 1):
            yield from (self.root / partition(MARKER, version)).glob(f"host={host}/date=*")

    def _in_day(self, day: Path) -> Iterator[tuple[int, Path]]:
        seen = self._seen.get(day.name, ())
        with os.scandir(day) as entries:
            new = [entry for entry in entries if entry.path not in seen]
        for entry in new:
            path = Path(entry.path)
            known = parsed(str(path.relative_to(self.root)))
            # Those of 'compact' hold rows that have been counted.
            if known is not None and not known[1].merged:
                with suppress(FileNotFoundError):  # merged or removed meanwhile
                    yield entry.stat().st_mtime_ns, path

    def _hosts(self) -> list[str]:
        places = [
            place
            for version in range(1, VERSION + 1)
            for place in (self.root / partition(MARKER, version)).glob("host=*")
        ]
        return sorted({place.name.removeprefix("host=") for place in places})

    def _choose_host(self) -> None:
        """Take the only host, once it is there.

        Raises:
            SpoolscopeError: there are several.
        """
        if self.host is not None:
            return
        hosts = self._hosts()
        if len(hosts) > 1:
            raise SpoolscopeError(
                f"{self.root} has roll-ups of {len(hosts)} hosts",
                remedy=f"give --host, such as {hosts[0]}",
                exit_code=USAGE,
            )
        self.host = hosts[0] if hosts else None

    def _note_newer(self, since: str) -> None:
        """Count flushes of newer versions of the schema, of which nothing is known.

        Args:
            since: Name of the directory of the first day; "" for all.
        """
        for schema in self.root.glob("schema=*"):
            number = schema.name.removeprefix("schema=")
            if not number.isdecimal() or int(number) <= VERSION:
                continue
            days = schema.glob(f"{MARKER}/host={self.host or '*'}/date=*")
            late = (day for day in days if day.name >= since)
            found = {file for day in late for file in day.glob("*.parquet")}
            if found and not self._of_newer:
                self._warn(
                    f"{self.root} has roll-ups of version {number}, which this spoolscope cannot "
                    "read; install the version that writes them"
                )
            self.outcomes["newer"] += len(found - self._of_newer)
            self._of_newer |= found

    def _read(self, marker: Path) -> Tables | None:
        """Return the tables of a flush; None if one is damaged, and is as it was the last time."""
        known = parsed(str(marker.relative_to(self.root)))
        assert known is not None
        try:
            found = marker.stat()
            if self._refused.get(marker) == (found.st_size, found.st_mtime_ns):
                return None
            tables = self._tables(known[1])
        except (OSError, SpoolscopeError):
            return None  # removed meanwhile, as too old, or with the whole directory
        except DamagedError as error:
            if marker not in self._refused:
                self.outcomes["refused"] += 1
                self._warn(f"{marker.relative_to(self.root)} is left out: {error}")
            self._refused[marker] = found.st_size, found.st_mtime_ns
            return None
        self._refused.pop(marker, None)
        self.outcomes["read"] += 1
        return tables

    def _tables(self, flush: Flush) -> Tables:
        minutes, seal = minutes_of(self._place, flush)
        contents = contents_of(self._place, flush, seal)
        rows = {MARKER: minutes, **{name: decoded(data) for name, data in contents.items()}}
        return {name: filled(table, name) for name, table in rows.items()}


def _since() -> str:
    """Return the name of the directory of the first day in which a flush is new."""
    return f"date={datetime.now(UTC).date() - timedelta(days=DAYS_BACK)}"


def _day(marker: Path) -> str:
    return marker.parent.name


def filled(rows: pa.Table, name: str) -> pa.Table:
    """Return rows with the columns of this version; one that they lack is zero or empty."""
    table = as_schema(rows, ROLLUPS[name].schema)
    columns: list[Any] = [
        column.fill_null("" if pa.types.is_string(column.type) else 0) for column in table.columns
    ]
    return pa.Table.from_arrays(columns, schema=table.schema)
