"""Upload of roll-ups to a bucket, or to another directory: no sound file there is ever changed.

The file of ``minutes`` is sent after the others of its flush. An upload that was killed or cut off
has made whole flushes visible, and the next one sends the rest.
"""

from collections.abc import Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path

from spoolscope.traces.errors import SpoolscopeError
from spoolscope.traces.phases import Progress, unseen
from spoolscope.traces.rollups.files import Rollups
from spoolscope.traces.rollups.listing import Listing, list_files
from spoolscope.traces.rollups.names import MARKER, Flush
from spoolscope.traces.rollups.places import Place, place, unreachable
from spoolscope.traces.rollups.sealed import (
    DamagedError,
    Seal,
    contents_of,
    marker_of,
    minutes_of,
    unsealed,
)

THREADS = 8
SENT, THERE, DIFFERENT = "sent", "there", "different"


@dataclass
class Upload:
    """The result of an upload.

    Attributes:
        sent: Flushes that were sent.
        bytes_sent: Their bytes.
        there: Flushes that were there before, as they are or in a merged one.
        different: Flushes that are there with other rows: they are not sent.
        damaged: Flushes that are not sent, as they are damaged, with the reason.
    """

    sent: int = 0
    bytes_sent: int = 0
    there: int = 0
    different: list[Flush] = field(default_factory=list)
    damaged: dict[Flush, str] = field(default_factory=dict)


def upload(
    source: str | Path,
    target: str | Path,
    *,
    hosts: Collection[str] | None = None,
    progress: Progress = unseen,
) -> Upload:
    """Send the flushes of a roll-up directory that its target lacks.

    Args:
        source: The directory.
        target: ``s3://BUCKET/PREFIX``, or another directory, which is made.
        hosts: Only these hosts; None: all.
        progress: Called with the step and the share that is done.

    Raises:
        SpoolscopeError: one of both cannot be used. What was sent until then stays there.
    """
    rollups, where, done = Rollups(source, hosts=hosts), place(target), Upload()
    progress("looking at what is there", None)
    there = _There(where, list_files(where, hosts={flush.host for flush in rollups.flushes}))
    sender = _Sender(rollups, there)
    try:
        for at, (flush, result) in enumerate(_each(sender, rollups.flushes), 1):
            done.sent += result == SENT
            done.there += result == THERE
            if result == DIFFERENT:
                done.different.append(flush)
            elif result not in (SENT, THERE):
                done.damaged[flush] = result
            progress("sending roll-ups", at / len(rollups.flushes))
    except OSError as error:
        failure = unreachable(where.shown, error)
        raise SpoolscopeError(
            f"{failure.message} ({done.sent} of {len(rollups.flushes) - done.there} flushes sent)",
            remedy=f"{failure.remedy}; the next run sends the rest",
        ) from error
    finally:
        done.bytes_sent = sum(sender.bytes_sent)
    return done


class _There:
    """The flushes of the target."""

    def __init__(self, where: Place, listing: Listing) -> None:
        self.place, self._listing = where, listing
        self._aside = {*listing.merged_away, *listing.overlapping}
        self._held: dict[tuple[str, date], set[str]] = {}
        for flush, sizes in listing.counted.items():
            if flush.merged:
                with suppress(DamagedError):  # what it held is sent again
                    _, seal = minutes_of(where, flush)
                    seal.check_sizes(sizes)
                    self._held.setdefault((flush.host, flush.day), set()).update(seal.holds)

    def compared(self, flush: Flush, seal: Seal) -> str | None:
        """Return THERE or DIFFERENT; None if the flush is not there, or damaged there."""
        held = self._held.get((flush.host, flush.day), set())
        if seal.recorded <= held or flush in self._aside:
            return THERE
        sizes = self._listing.counted.get(flush)
        if sizes is None:
            return None
        try:
            _, there = minutes_of(self.place, flush)
            there.check_sizes(sizes)
        except DamagedError:
            return None
        return THERE if there.digest == seal.digest else DIFFERENT


class _Sender:
    def __init__(self, rollups: Rollups, there: _There) -> None:
        self._source, self._there = rollups.place, there
        self.bytes_sent: list[int] = []

    def send(self, flush: Flush) -> str:
        """Send one flush, if the target lacks it; return what was done, or what is wrong."""
        try:
            marker = marker_of(self._source, flush)
            _, seal = unsealed(marker, flush)
            if known := self._there.compared(flush, seal):
                return known
            contents = contents_of(self._source, flush, seal)
        except DamagedError as error:
            return str(error)
        for table, content in {**contents, MARKER: marker}.items():
            self._there.place.put(flush.path(table), content, durable=True)
            self.bytes_sent.append(len(content))
        return SENT


def _each(sender: _Sender, flushes: list[Flush]) -> Iterator[tuple[Flush, str]]:
    """Yield what was done with each flush; after an error no further one is begun."""
    pool = ThreadPoolExecutor(THREADS)
    try:
        yield from zip(flushes, pool.map(sender.send, flushes), strict=True)
    finally:
        pool.shutdown(cancel_futures=True)
