"""List of the files of roll-ups: which flushes count, and why others do not."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from datetime import date
from itertools import groupby

from spoolscope.traces.rollups import schema
from spoolscope.traces.rollups.names import MARKER, WINDOWS, Flush, is_merged, parsed
from spoolscope.traces.rollups.places import Place, unreachable
from spoolscope.traces.rollups.sealed import DamagedError, minutes_of

BESIDE = ("days=", "frozen/", WINDOWS, ".minutes-")
"""Beginnings of the paths of what may lie beside roll-ups: day sums, frozen traces, and what a
recorder has in work: the windows of its flight recorder, minutes that are not written yet."""


@dataclass
class Listing:
    """Files of a roll-up directory.

    Attributes:
        counted: Flushes that count, each with the bytes of its files by table.
        merged_away: Flushes all of whose rows are in merged ones, which count.
        overlapping: Flushes some of whose rows are in merged ones: they do not count.
        drafts: Files without their final names: being written, or left by a killed writer.
        halves: Files of flushes without ``minutes``: by a crash, or just being written.
        newer: Number of files of newer versions, by version.
        foreign: Paths of other files.
        damaged: Merged flushes that are damaged, with the reason, beside others of their day.
    """

    counted: dict[Flush, dict[str, int]] = field(default_factory=dict)
    merged_away: list[Flush] = field(default_factory=list)
    overlapping: list[Flush] = field(default_factory=list)
    drafts: list[str] = field(default_factory=list)
    halves: list[str] = field(default_factory=list)
    newer: dict[int, int] = field(default_factory=dict)
    foreign: list[str] = field(default_factory=list)
    damaged: dict[Flush, str] = field(default_factory=dict)

    def of_day(self, day: date, counted: Iterable[Flush]) -> "Listing":
        """Return what is of one day, and files of newer versions, whose days are not kept.

        Args:
            day: The day.
            counted: Those of its flushes that count.
        """

        def paths(every: list[str]) -> list[str]:
            return [path for path in every if f"/date={day}/" in path]

        def flushes(every: Iterable[Flush]) -> list[Flush]:
            return [flush for flush in every if flush.day == day]

        return Listing(
            {flush: self.counted[flush] for flush in counted},
            flushes(self.merged_away),
            flushes(self.overlapping),
            paths(self.drafts),
            paths(self.halves),
            self.newer,
            paths(self.foreign),
            {flush: self.damaged[flush] for flush in flushes(self.damaged)},
        )


def list_files(
    where: Place,
    *,
    hosts: Collection[str] | None = None,
    since: date | None = None,
    until: date | None = None,
) -> Listing:
    """Return the list of the flushes of some hosts and days; it may be empty.

    Args:
        where: The roll-up directory.
        hosts: Only these hosts: only their directories are listed; None: all.
        since: Only from this UTC date on.
        until: Only to this UTC date, itself included.

    Raises:
        SpoolscopeError: the place cannot be read.
    """

    def asked(flush: Flush) -> bool:
        return (
            (hosts is None or flush.host in hosts)
            and (since is None or since <= flush.day)
            and (until is None or flush.day <= until)
        )

    listing = Listing()
    found: dict[Flush, dict[str, int]] = {}
    for path, size in _sizes(where, hosts).items():
        if path.startswith(BESIDE):
            continue
        if (known := parsed(path)) is None:
            is_draft = path.rsplit("/", 1)[-1].startswith(".")
            (listing.drafts if is_draft else listing.foreign).append(path)
            continue
        table, flush = known
        if not asked(flush):
            continue
        if flush.version > schema.VERSION:
            listing.newer[flush.version] = listing.newer.get(flush.version, 0) + 1
        else:
            found.setdefault(flush, {})[table] = size
    for flush in sorted(found):
        if MARKER in found[flush]:
            listing.counted[flush] = found[flush]
        else:
            listing.halves += [flush.path(table) for table in found[flush]]
    _leave_out_merged(where, listing)
    return listing


def _sizes(where: Place, hosts: Collection[str] | None) -> dict[str, int]:
    try:
        if hosts is None:
            return where.sizes("")
        versions = [name for name in where.names() if name.startswith("schema=")]
        return {
            path: size
            for version in versions
            for table in schema.ROLLUPS
            for host in hosts
            for path, size in where.sizes(f"{version}/{table}/host={host}").items()
        }
    except OSError as error:
        raise unreachable(where.shown, error) from error


def _leave_out_merged(where: Place, listing: Listing) -> None:
    """Move flushes of which merged ones have the rows out of those that count."""
    for _, group in groupby(list(listing.counted), key=lambda flush: (flush.host, flush.day)):
        flushes = list(group)
        if len(flushes) == 1 or not any(flush.merged for flush in flushes):
            continue
        holds = _holds(where, flushes, listing)
        counted: set[str] = set()
        for flush in sorted(holds, key=lambda flush: (-len(holds[flush]), flush)):
            if holds[flush].isdisjoint(counted):
                counted |= holds[flush]
                continue
            is_in = all(name in counted or is_merged(name) for name in holds[flush])
            (listing.merged_away if is_in else listing.overlapping).append(flush)
            del listing.counted[flush]


def _holds(where: Place, flushes: Iterable[Flush], listing: Listing) -> dict[Flush, frozenset[str]]:
    """Return the names of flushes that each one has the rows of; damaged ones are moved out."""
    holds = {}
    for flush in flushes:
        if not flush.merged:
            holds[flush] = frozenset([flush.name])
            continue
        try:
            _, seal = minutes_of(where, flush)
            seal.check_sizes(listing.counted[flush])
        except DamagedError as error:
            listing.damaged[flush] = str(error)
            del listing.counted[flush]
        else:
            holds[flush] = seal.holds
    return holds
