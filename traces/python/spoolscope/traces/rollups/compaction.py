"""Compaction of roll-ups: the flushes of a host and day become one, and sums stay what they are.

The merged flush becomes visible, and names the flushes whose rows it has; only then are these
removed. Readers count each row once at every moment, and a compaction that was killed is finished
by the next one.
"""

import hashlib
import time
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import date
from itertools import groupby
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from spoolscope.traces.digests import DIGEST_BYTES
from spoolscope.traces.errors import SpoolscopeError
from spoolscope.traces.phases import Progress, unseen
from spoolscope.traces.rollups import schema
from spoolscope.traces.rollups.contract import in_steps
from spoolscope.traces.rollups.files import Rollups, as_schema, put
from spoolscope.traces.rollups.names import (
    DAY_S,
    HOUR_S,
    MARKER,
    MERGED,
    MINUTE_S,
    Flush,
    parsed,
)
from spoolscope.traces.rollups.places import Place
from spoolscope.traces.rollups.sealed import STEP, DamagedError, contents_of, decoded, minutes_of

SUMMED = ("n", "sum_ns", "calls", "lost", "covered_ns")
"""Columns whose sums are the same before and after."""

OLD_S = DAY_S
"""Age from which an unfinished file of a merged flush is that of a killed compaction."""

Tables = Mapping[str, pa.Table]


@dataclass
class Compaction:
    """The result of a compaction.

    Attributes:
        days: Days of hosts whose flushes were merged.
        flushes: Flushes that were merged.
        rows_before: Their rows.
        rows_after: Rows of the merged ones.
        bytes_before: Bytes of their files.
        bytes_after: Bytes of the files of the merged ones.
        removed: Files that were removed, those that a killed compaction had left included.
        damaged: Flushes that stay as they are, as they are damaged, with the reason.
    """

    days: int = 0
    flushes: int = 0
    rows_before: int = 0
    rows_after: int = 0
    bytes_before: int = 0
    bytes_after: int = 0
    removed: int = 0
    damaged: dict[Flush, str] = field(default_factory=dict)

    def add(self, other: "Compaction") -> None:
        """Add the result of another one to this one."""
        self.damaged |= other.damaged
        for name in vars(self).keys() - {"damaged"}:
            setattr(self, name, getattr(self, name) + getattr(other, name))


def compact(
    where: str | Path,
    *,
    until: date,
    since: date | None = None,
    hosts: Collection[str] | None = None,
    left_alone_s: float | None = None,
    by_hour: bool = False,
    progress: Progress = unseen,
) -> Compaction:
    """Merge the flushes of each host and day.

    Args:
        where: A directory, or ``s3://BUCKET/PREFIX``.
        until: Last UTC day to merge; the recorders should be done with it.
        since: First UTC day; None: all from the first one on.
        hosts: Only these hosts; None: all.
        left_alone_s: Merge only flushes that are not merged yet and were written at least so many
            seconds ago, also while recorders write; None: all.
        by_hour: Sum the calls, commits and directories of each hour up. ``minutes`` stays.
        progress: Called with the step and the share that is done.

    Raises:
        SpoolscopeError: the place cannot be read, or sums would have changed.
        OSError: it cannot be written.
    """
    rollups = Rollups(where, hosts=hosts, since=since, until=until)
    alone = set[Flush]()
    if left_alone_s is not None:
        alone = _left_alone(rollups, time.time() - left_alone_s)
    done, seen = Compaction(), 0
    for _, group in groupby(rollups.flushes, key=lambda flush: (flush.host, flush.day)):
        flushes = list(group)
        _compact_day(rollups, flushes, alone, HOUR_S if by_hour else MINUTE_S, done)
        seen += len(flushes)
        progress("merging roll-ups", seen / len(rollups.flushes))
    return done


def _left_alone(rollups: Rollups, before_s: float) -> set[Flush]:
    """Return the flushes that are merged, were written later, or were removed meanwhile."""
    return {
        flush
        for flush in rollups.flushes
        if flush.merged or rollups.place.written_s(flush.path(MARKER)) > before_s
    }


def merged(name: str, parts: Iterable[pa.Table], step_s: int = MINUTE_S) -> pa.Table:
    """Return the rows of one table from many of any version: measures of equal keys are merged.

    Args:
        name: The table.
        parts: The rows.
        step_s: Step of the times of the result; the table ``minutes`` keeps its minutes.
    """
    if name != MARKER and step_s != MINUTE_S:
        parts = [in_steps(part, step_s) for part in parts]
    shape = schema.ROLLUPS[name].schema
    spans = [(*_span(part), part) for part in parts if part.num_rows]
    hours = sorted({hour for first, last, _ in spans for hour in range(first, last + 1)})
    # Hour by hour, as all rows of a day at once would take three times the memory.
    of_hours = [
        _summed(pa.concat_tables(_of_hour(part, hour, shape) for part in there), shape)
        for hour in hours
        if (there := [part for first, last, part in spans if first <= hour <= last])
    ]
    return pa.concat_tables([shape.empty_table(), *of_hours])


def _span(part: pa.Table) -> tuple[int, int]:
    """Return the first and the last hour of some rows, since the epoch."""
    of = pc.min_max(part["minute_s"])
    return of["min"].as_py() // HOUR_S, of["max"].as_py() // HOUR_S


def _of_hour(part: pa.Table, hour: int, shape: pa.Schema) -> pa.Table:
    minute = part["minute_s"]
    begin, end = (pa.scalar(at * HOUR_S, pa.int64()) for at in (hour, hour + 1))
    rows = part.filter(pc.and_(pc.greater_equal(minute, begin), pc.less(minute, end)))
    return as_schema(rows, shape)


def _summed(rows: pa.Table, shape: pa.Schema) -> pa.Table:
    measures = [(c, how) for c, how in schema.MEASURES.items() if c in shape.names]
    if not measures:
        return rows
    keys = [column for column in shape.names if column not in schema.MEASURES]
    sums = rows.group_by(keys).aggregate(measures)
    of_sums = {f"{column}_{how}": column for column, how in measures}
    return as_schema(sums.rename_columns([of_sums.get(c, c) for c in sums.schema.names]), shape)


@dataclass(frozen=True)
class _Source:
    """A sound flush.

    Attributes:
        tables: Its rows, in the step that was asked for.
        holds: Names of all flushes whose rows it has.
        step_s: The step of its file.
        rows: The number of rows of its file.
        sums: Sums of the columns of its file, by table and column.
    """

    tables: Tables
    holds: frozenset[str]
    step_s: int
    rows: int
    sums: Mapping[tuple[str, str], int]


def _compact_day(
    rollups: Rollups, there: list[Flush], alone: Collection[Flush], step_s: int, done: Compaction
) -> None:
    """Merge the flushes of a host and day that are not left alone; finish what was begun."""
    flushes = [flush for flush in there if flush not in alone]
    where, sizes, listing = rollups.place, rollups.listing.counted, rollups.listing
    day = (there[0].host, there[0].day)
    away = [flush for flush in listing.merged_away if (flush.host, flush.day) == day]
    unfinished = [p for p in listing.halves + listing.drafts if _is_of(p, there[0])]
    if not away and not unfinished and _is_done(where, flushes, step_s):
        return
    sources = {
        flush: source for flush in flushes if (source := _source(where, flush, step_s, done))
    }
    held: set[str] = set().union(*(source.holds for source in sources.values()))
    if len(sources) > 1 or any(source.step_s < step_s for source in sources.values()):
        new = _merge(where, sources, held, step_s, done)
        done.bytes_before += sum(sum(sizes[flush].values()) for flush in sources)
        away = [flush for flush in (*sources, *away) if flush != new]
    if unfinished or not held.issuperset(flush.name for flush in away):
        held |= _held_by(where, [flush for flush in there if flush in alone and flush.merged])
    for flush in away:
        if flush.name in held or _is_held(where, flush, held):
            for table in sorted(schema.ROLLUPS, key=lambda table: table != MARKER):
                where.remove(flush.path(table))
                done.removed += 1
    for path in unfinished:
        known = parsed(path)
        if (known is not None and known[1].name in held) or (
            (known is None or known[1].merged) and _is_old(where, path)
        ):
            where.remove(path)
            done.removed += 1


def _is_done(where: Place, flushes: list[Flush], step_s: int) -> bool:
    """Return True if the only flush of a day, if any, has this step, or a longer one."""
    if len(flushes) > 1:
        return False
    try:
        return step_s == MINUTE_S or all(minutes_of(where, f)[1].step_s >= step_s for f in flushes)
    except DamagedError:
        return False


def _held_by(where: Place, flushes: Iterable[Flush]) -> set[str]:
    """Return the names of all flushes whose rows the sound ones of these have."""
    held = set[str]()
    for flush in flushes:
        try:
            _, seal = minutes_of(where, flush)
            contents_of(where, flush, seal)
        except DamagedError:
            continue
        held |= seal.holds
    return held


def _is_held(where: Place, flush: Flush, held: set[str]) -> bool:
    """Return True if sound flushes have all rows of one that does not count."""
    try:
        _, seal = minutes_of(where, flush)
    except DamagedError:
        return False
    return seal.recorded <= held


def _source(where: Place, flush: Flush, step_s: int, done: Compaction) -> _Source | None:
    """Return a flush after a check of all its files; None if it is damaged.

    Its hours are summed up at once: the minutes of a whole day would take 1.5 GB.
    """
    try:
        minutes, seal = minutes_of(where, flush)
        contents = contents_of(where, flush, seal)
    except DamagedError as error:
        done.damaged[flush] = str(error)
        return None
    tables = {table: decoded(content, coded=True) for table, content in contents.items()}
    tables[MARKER] = minutes
    n, sums = _rows(tables), _sums(tables)
    if seal.step_s < step_s:
        tables = {name: merged(name, [rows], step_s) for name, rows in tables.items()}
    return _Source(tables, seal.holds, seal.step_s, n, sums)


def _merge(
    where: Place,
    sources: Mapping[Flush, _Source],
    held: set[str],
    step_s: int,
    done: Compaction,
) -> Flush:
    """Write the merged flush of some others, and return it."""
    some = next(iter(sources))
    step_s = max(step_s, *(source.step_s for source in sources.values()))
    words = [*sorted(held), *([str(step_s)] if step_s != MINUTE_S else [])]
    name = hashlib.blake2b("\n".join(words).encode(), digest_size=DIGEST_BYTES).hexdigest()
    new = Flush(some.host, some.day, f"{MERGED}-{name}", schema.VERSION)
    before = [source.tables for source in sources.values()]
    after = {
        table: merged(table, [tables[table] for tables in before if table in tables], step_s)
        for table in schema.ROLLUPS
    }
    _check_sums(new, sources.values(), after)
    done.bytes_after += put(where, new, after, {STEP: str(step_s)}, held, durable=True)
    done.days += 1
    done.flushes += len(sources)
    done.rows_before += sum(source.rows for source in sources.values())
    done.rows_after += _rows(after)
    return new


def _check_sums(new: Flush, before: Iterable[_Source], after: Tables) -> None:
    """Check that nothing is lost, as what was merged is removed next."""
    sums = Counter[tuple[str, str]]()
    for source in before:
        sums.update(source.sums)
    for (table, column), found in _sums(after).items():
        if sums[table, column] != found:
            raise SpoolscopeError(
                f"merging would change {column} of {table} of {new.host} on {new.day}",
                remedy="please report it; nothing was removed",
            )


def _sums(tables: Tables) -> dict[tuple[str, str], int]:
    return {
        (name, column): int(pc.sum(rows[column]).as_py() or 0)
        for name, rows in tables.items()
        for column in SUMMED
        if column in rows.schema.names
    }


def _rows(tables: Tables) -> int:
    return sum(rows.num_rows for rows in tables.values())


def _is_of(path: str, flush: Flush) -> bool:
    """Return True if a path is of the host and day of a flush."""
    return f"/host={flush.host}/date={flush.day}/" in path


def _is_old(where: Place, path: str) -> bool:
    """Return True if no compaction can still be at work on a file."""
    return time.time() - where.written_s(path) > OLD_S
