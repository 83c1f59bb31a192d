"""Groups of processes: of one program, started by one process, or of one unit.

A script may start a thousand processes that each do next to nothing. So charges to processes are
summed at every level, and named at the lowest level that holds the share.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

import duckdb

from spoolscope.analysis.wording import count

PROCESS, PROGRAM, PARENT, UNIT = range(4)
"""Levels, the narrowest first: a parent stands for all its descendants."""

GAIN = 1.5
"""A wider level is named only if it holds that much more."""
MOSTLY = 0.9
"""Share of a group from which a fact counts as true for the group."""
DEEPEST = 8
LISTED = 3

T = TypeVar("T")
_KERNEL_NAMES = (
    "kworker/", "ksoftirqd/", "migration/", "jbd2/", "kswapd", "kcompactd", "loop", "xfsaild/",
    "btrfs-", "rcu",
)  # fmt: skip
"""Prefixes of the names of kernel threads, which need not be in any table of a trace."""

Key = tuple[int, str]
"""A process as tables name it: pid, and the name of the thread."""

# The leader stands for its thread group. Where a pid was reused, the name tells the processes
# apart, if it differs.
_LIVES = """
SELECT pid, comm, min(parent_pid), any_value(nullif(cgroup, '/')), count(DISTINCT parent_pid) > 1
FROM threads WHERE tid = pid AND kind = 'task' GROUP BY pid, comm
"""


@dataclass(frozen=True)
class Process:
    """A process, or several that cannot be distinguished.

    Attributes:
        pid: Its id.
        program: Its name.
        parents: Its ancestors, the nearest first, as (pid, name); an unrecorded one has the name
            "".
        unit: Its control group; None at the root, or if it is unknown.
    """

    pid: int
    program: str
    parents: tuple[Key, ...] = ()
    unit: str | None = None


class Families:
    """Program, ancestors and unit of each process (needs the table ``threads``)."""

    def __init__(self, con: duckdb.DuckDBPyConnection) -> None:
        """Read the lives of all processes."""
        self._lives: dict[int, dict[str, tuple[int | None, str | None]]] = defaultdict(dict)
        for pid, comm, parent, unit, several in con.execute(_LIVES).fetchall():
            self._lives[pid][comm] = (None if several else parent, unit)
        self._known: dict[Key, Process] = {}
        kernel = "SELECT DISTINCT pid FROM threads WHERE kind = 'kernel'"
        self._kernel = {pid for (pid,) in con.execute(kernel).fetchall()}

    def of(self, key: Key) -> Process:
        """Return a process by its pid and the name of one of its threads."""
        if (known := self._known.get(key)) is not None:
            return known
        pid, comm = key
        name, (_, unit) = self._life(pid, comm)
        found = Process(pid, name or comm, self._parents(pid, comm), unit)
        self._known[key] = found
        return found

    def is_kernel(self, key: Key) -> bool:
        """Return True for a kernel thread, which works for others."""
        return key[0] in self._kernel or key[1].startswith(_KERNEL_NAMES)

    def _life(self, pid: int, comm: str) -> tuple[str, tuple[int | None, str | None]]:
        lives = self._lives.get(pid, {})
        if len(lives) == 1:
            ((name, life),) = lives.items()
            return name, life
        return comm, lives.get(comm, (None, None))

    def _parents(self, pid: int, comm: str) -> tuple[Key, ...]:
        found: list[Key] = []
        while len(found) < DEEPEST:
            _, (parent, _) = self._life(pid, comm)
            if parent is None or parent <= 1 or any(parent == known for known, _ in found):
                break
            pid, comm = parent, self._life(parent, "")[0]
            found.append((pid, comm))
        return tuple(found)


@dataclass
class Group:
    """A group of processes, and what is charged to it.

    Attributes:
        level: PROCESS, PROGRAM, PARENT or UNIT.
        name: Name of the process, program, parent or unit.
        pid: The process, or the parent; None for programs and units.
        members: Its processes; ``pids`` are their ids.
        charged: Sum of their charges; by_member has the charge of each process with one.
    """

    level: int
    name: str
    pid: int | None
    members: dict[Key, Process] = field(default_factory=dict)
    pids: set[int] = field(default_factory=set)
    charged: int = 0
    by_member: dict[Key, int] = field(default_factory=dict)

    def add(self, key: Key, process: Process, charged: int) -> None:
        """Add a process and its charge; only once, even if it is its own ancestor."""
        if key in self.members:
            return
        self.members[key] = process
        self.pids.add(process.pid)
        if charged:
            self.by_member[key] = charged
            self.charged += charged

    @property
    def n_processes(self) -> int:
        """Number of processes in the group."""
        return len(self.pids)

    @property
    def charged_pids(self) -> list[int]:
        """The processes of the group that have a charge, in order."""
        return sorted({self.members[key].pid for key in self.by_member})

    @property
    def programs(self) -> list[str]:
        """The names of its programs with a charge, the largest first."""
        charged = Counter[str]()
        for key, ns in self.by_member.items():
            charged[self.members[key].program] += ns
        return sorted(charged, key=lambda name: (-charged[name], name))

    @property
    def parent(self) -> Key | None:
        """The process that started nearly all of the group, if there is one; its name may be ""."""
        return self._shared(lambda process: process.parents[0] if process.parents else None)

    @property
    def unit(self) -> str | None:
        """The control group, below the root, of nearly all of the group."""
        return self._shared(lambda process: process.unit)

    def _shared(self, of: Callable[[Process], T | None]) -> T | None:
        charged: Counter[T] = Counter()
        for key, process in self.members.items():
            if (value := of(process)) is not None:
                charged[value] += self.by_member.get(key, 0)
        value, ns = next(iter(charged.most_common(1)), (None, 0))
        return value if ns and ns >= MOSTLY * self.charged else None

    @property
    def words(self) -> str:
        """The group in words: its kind, its number of processes with a charge, their origin."""
        pids = self.charged_pids
        if self.level == PROCESS or (self.level == PROGRAM and len(pids) == 1):
            return f"{self.name} (process {pids[0]})"
        many = f"{count(len(pids))} process{'' if len(pids) == 1 else 'es'}"
        if self.level == PROGRAM:
            return f"{self.name} ({many}{self._origin()})"
        listed = self.programs[:LISTED]
        kinds = f"{many}: {', '.join(listed)}{', ...' if len(self.programs) > LISTED else ''}"
        if self.level == UNIT:
            return f"{self.name} ({kinds})"
        return f"{said(self.pid or 0, self.name)} with what it started ({kinds})"

    def _origin(self) -> str:
        if self.parent is not None:
            pid, name = self.parent
            return f" started by {name}, process {pid}" if name else f" started by process {pid}"
        return f" of {self.unit}" if self.unit else ""


def said(pid: int, name: str) -> str:
    """Return a process in words, by its name if it is known."""
    return f"{name} (process {pid})" if name else f"process {pid}"


def grouped(
    charges: Mapping[Key, int], families: Families, everybody: Iterable[Key] = ()
) -> dict[int, list[Group]]:
    """Sum up charges at every level, the largest first; groups without a charge are left out.

    Args:
        charges: Charge of each process.
        families: Groups of each process.
        everybody: All processes, also those without a charge: they count in groups.
    """
    groups: dict[tuple[int, int | None, str], Group] = {}
    for key, charged in charges.items():
        process = families.of(key)
        for place in _places(process):
            if (group := groups.get(place)) is None:
                group = groups[place] = Group(place[0], place[2], place[1])
            group.add(key, process, charged)
    # A process without a charge matters only in a group with one.
    for key in everybody:
        process = families.of(key)
        for place in _places(process):
            if (group := groups.get(place)) is not None:
                group.add(key, process, 0)
    found: dict[int, list[Group]] = {level: [] for level in (PROCESS, PROGRAM, PARENT, UNIT)}
    # The group with the fewest processes tells most among those with the same charge.
    for group in sorted(groups.values(), key=lambda g: (-g.charged, len(g.members), g.name)):
        found[group.level].append(group)
    return found


def _places(process: Process) -> list[tuple[int, int | None, str]]:
    """Return level, pid and name of the groups that a process is in."""
    found: list[tuple[int, int | None, str]] = [
        (PROCESS, process.pid, process.program),
        (PROGRAM, None, process.program),
        (PARENT, process.pid, process.program),
    ]
    found += [(PARENT, pid, name) for pid, name in process.parents]
    if process.unit is not None:
        found.append((UNIT, None, process.unit))
    return found


def narrowest(candidates: Iterable[tuple[Group, int]]) -> Group | None:
    """Return the narrowest group that holds the share.

    Args:
        candidates: At most one group of each level, with its charge, the narrowest level first.
    """
    best: tuple[Group, int] | None = None
    for group, holds in candidates:
        if best is None or (holds > best[1] and holds >= GAIN * best[1]):
            best = group, holds
    return best[0] if best else None
