"""Processes whose requests the disk served while others waited, at the level with the share."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import duckdb
import numpy as np

from spoolscope.analysis.causes import AT_DISK
from spoolscope.analysis.families import Families, Group, Key, grouped, narrowest
from spoolscope.analysis.services import Turns, Window, disk_turns
from spoolscope.traces.trace import Trace

LEAST_SHARE = 0.4
"""A process with a smaller share of the disk's time does not keep others from the disk."""

_WAITS = f"""
SELECT coalesce(dev, 0), ts_ns, dur_ns, pid FROM named_waits
WHERE shown AND placed AND dur_ns > 0 AND cause IN {AT_DISK}
"""
# A loop device has requests of its own, and it is these that its holders made.
_DISKS = """
SELECT DISTINCT parent_dev, dev FROM block_ios
WHERE parent_dev IS NOT NULL AND parent_dev NOT IN (SELECT dev FROM block_ios)
"""
BATCH = 200_000
_COMM_BITS = 30
"""A process key is one number: the pid, and in so many low bits the index of its name."""


@dataclass(frozen=True)
class DiskHolder:
    """Processes that belong together, and their part of a disk's time.

    Attributes:
        who: The processes in words; ``name`` is only their name.
        disk: The disk, major << 20 | minor.
        n: Number of their requests, served for ``ns``; the disk was busy for ``busy_ns``.
        others_ns: Time that shown calls of others waited for this disk while it served these.
        outside_ns: Time of all shown calls of others.
    """

    who: str
    name: str
    disk: int
    n: int
    ns: int
    busy_ns: int
    others_ns: int
    outside_ns: int

    @property
    def share(self) -> float:
        """Share of the others' call time that was spent waiting while the disk served these."""
        return min(1.0, self.others_ns / self.outside_ns) if self.outside_ns > 0 else 0.0


@dataclass(frozen=True)
class DiskUse:
    """Time that each disk served each process, ns, and the number of its requests.

    Requests that repeat those of a loop device are left out.
    """

    busy: dict[int, Counter[Key]] = field(default_factory=lambda: defaultdict(Counter))
    numbers: dict[int, Counter[Key]] = field(default_factory=lambda: defaultdict(Counter))

    def add(self, turns: Turns) -> None:
        """Add requests."""
        real, length = ~turns.looped, turns.to_ns - turns.from_ns
        who = turns.pid << _COMM_BITS | turns.comm
        for disk in np.unique(turns.disk[real]).tolist():
            here = real & (turns.disk == disk)
            keys, places = np.unique(who[here], return_inverse=True)
            ns, n = np.zeros(len(keys), np.int64), np.bincount(places)
            np.add.at(ns, places, length[here])
            for key, took, times in zip(keys.tolist(), ns.tolist(), n.tolist(), strict=True):
                pid, comm = key >> _COMM_BITS, turns.names[key & (1 << _COMM_BITS) - 1]
                self.busy[disk][pid, comm] += took
                self.numbers[disk][pid, comm] += times


def disk_holders(
    con: duckdb.DuckDBPyConnection,
    trace: Trace,
    families: Families,
    times: Mapping[Key, int],
    use: DiskUse,
    window: Window = None,
) -> list[DiskHolder]:
    """Return the processes that used much of a disk while others waited for it, the worst first.

    Args:
        con: Needs ``named_waits``.
        trace: The trace.
        families: Groups of each process.
        times: Time of the calls that are shown, by process.
        use: All requests that overlap the window.
        window: Only requests that overlap this time, ns since the epoch; None: all.
    """
    large = [
        _Served(disk, group)
        for disk, charges in use.busy.items()
        for group in _large(charges, families, times)
    ]
    if not large:
        return []
    for turns in disk_turns(trace, window):
        for served in large:
            served.add(turns)
    _wait(con, large)
    found = [
        DiskHolder(
            who=one.group.words,
            name=one.group.name,
            disk=one.disk,
            n=sum(use.numbers[one.disk][key] for key in one.group.members),
            ns=one.group.charged,
            busy_ns=use.busy[one.disk].total(),
            others_ns=one.others_ns,
            outside_ns=sum(ns for (pid, _), ns in times.items() if pid not in one.group.pids),
        )
        for disk in use.busy
        for one in _named([one for one in large if one.disk == disk])
    ]
    return sorted(found, key=lambda holder: -holder.share)


def _large(charges: Counter[Key], families: Families, everybody: Iterable[Key]) -> list[Group]:
    """Return the groups that used much of a disk, the narrowest first.

    Kernel threads are left out: they make requests on behalf of others.
    """
    theirs = {key: ns for key, ns in charges.items() if not families.is_kernel(key)}
    groups = grouped(theirs, families, everybody)
    least = LEAST_SHARE * charges.total()
    return [group for level in groups.values() for group in level if group.charged >= least > 0]


def _named(large: list["_Served"]) -> Iterator["_Served"]:
    """Yield the one to name of each set of nested groups; ``large`` has the narrowest first."""
    seen: list[_Served] = []
    for seed in large:
        if any(seed is one for one in seen):
            continue
        chain = [one for one in large if seed.group.members.keys() <= one.group.members.keys()]
        seen += chain
        chosen = narrowest((one.group, one.others_ns) for one in chain)
        yield from (one for one in chain if one.group is chosen)


class _Served:
    """Disjoint intervals in which a disk served a group, and how long others waited meanwhile."""

    def __init__(self, disk: int, group: Group) -> None:
        self.disk, self.group, self.others_ns = disk, group, 0
        self.pids = np.array(sorted(group.pids))
        self._parts: list[np.ndarray] = []
        self._ends: np.ndarray | None = None

    def add(self, turns: Turns) -> None:
        """Add the turns of the group at the disk."""
        theirs = (turns.disk == self.disk) & ~turns.looped & np.isin(turns.pid, self.pids)
        self._parts.append(np.stack([turns.from_ns[theirs], turns.to_ns[theirs]]))

    def within(self, from_ns: np.ndarray, to_ns: np.ndarray) -> np.ndarray:
        """Return how much of each given interval the disk served the group, ns."""
        if self._ends is None:
            self._begins, self._ends = np.concatenate(self._parts, axis=1)
            self._before = np.concatenate([[0], np.cumsum(self._ends - self._begins)])
        until: np.ndarray = self._until(to_ns) - self._until(from_ns)
        return until

    def _until(self, at_ns: np.ndarray) -> np.ndarray:
        """Return how long the disk had served the group until each given instant."""
        assert self._ends is not None
        n = np.searchsorted(self._begins, at_ns, side="right")
        last = np.maximum(n - 1, 0)
        over = np.where(n > 0, np.maximum(0, self._ends[last] - at_ns), 0)
        until: np.ndarray = self._before[n] - over
        return until


def _wait(con: duckdb.DuckDBPyConnection, large: list[_Served]) -> None:
    """Add how long calls of other processes waited for the disk while it served each of these.

    A filesystem over several disks has an anonymous device number: a call may wait for any disk.
    """
    on = {int(part): int(disk) for part, disk in con.execute(_DISKS).fetchall()}
    for dev, from_ns, dur_ns, pid in _batches(con):
        disk = np.array([on.get(number, number) for number in dev.tolist()], np.int64)
        for one in large:
            hurt = ((disk == one.disk) | (disk < 1 << 20)) & ~np.isin(pid, one.pids)
            one.others_ns += int(one.within(from_ns[hurt], (from_ns + dur_ns)[hurt]).sum())


def _batches(con: duckdb.DuckDBPyConnection) -> Iterator[Any]:
    for batch in con.sql(_WAITS).to_arrow_reader(BATCH):
        yield tuple(column.to_numpy() for column in batch.columns)
