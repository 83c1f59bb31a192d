"""Processes that trigger commits, summed up at the level that holds the share."""

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import duckdb

from spoolscope.analysis.families import PROCESS, PROGRAM, Families, Group, Key, grouped, narrowest

FORCED_COMMITS, FORCED_SHARE, FORCED_TIMES = 20, 0.2, 3
"""Least number of commits of a process that forces them, their share of all, and their ratio to
those of the next process."""
MOSTLY = 0.5
"""Share of its commits from which on a call stands for all of them."""
LEAST_OTHERS = 0.1
"""A group of processes forces commits only if calls of others have this share of the time."""

SHOWN = 10

# A task that is not recorded may ask for commits, too.
_ASKED = """trigger IN ('call', 'other') AND trigger_pid IS NOT NULL AND trigger_comm IS NOT NULL"""
_COUNTED = "in_slice(from_ns, to_ns)"

_COMMITS = f"""
SELECT trigger_pid, trigger_comm, count(*), CAST(sum(dur_ns) AS BIGINT) FROM commit_spans
WHERE {_ASKED} AND {_COUNTED} GROUP BY ALL
"""

# How long each process waited for commits, by the process that asked for them.
_WAITED = f"""
SELECT c.trigger_pid, c.trigger_comm, w.pid, CAST(sum(w.to_ns - w.from_ns) AS BIGINT)
FROM commit_spans c JOIN commit_waits w USING (commit_id)
WHERE {_ASKED} AND w.tid IS DISTINCT FROM c.trigger_tid
GROUP BY ALL
"""

_MOSTLY = f"""
SELECT {{column}}, count(*) FROM commit_triggers JOIN commit_spans USING (commit_id)
WHERE list_contains({{pids}}, trigger_pid) AND {{column}} NOT IN ('-', '') AND {_ASKED}
    AND {_COUNTED}
GROUP BY 1 ORDER BY count(*) DESC, 1 LIMIT 1
"""


@dataclass(frozen=True)
class Asker:
    """A group of processes, and the commits that it asked for.

    Attributes:
        who: The processes in words; ``name`` is only their name.
        n: Commits they triggered, of ``n_commits`` in the part that is shown; the next group of
            this level triggered ``n_next``.
        commit_ns: The length of these commits in sum.
        others_ns: Time that others waited for these commits, in the calls that are shown.
        outside_ns: Time of all these calls of others.
        syscall: The call of most of these commits; None if it was not recorded, or asked for less
            than half of them.
        path: The path that most of them were asked for by, ``path_n`` of them; None likewise if it
            is not known.
    """

    who: str
    name: str
    n: int
    n_next: int
    n_commits: int
    commit_ns: int
    others_ns: int
    outside_ns: int
    syscall: str | None = None
    path: str | None = None
    path_n: int = 0

    @property
    def forces(self) -> bool:
        """True if they asked for far more commits than any other group."""
        least = max(FORCED_COMMITS, FORCED_SHARE * self.n_commits, FORCED_TIMES * self.n_next)
        return self.n >= least

    @property
    def share(self) -> float:
        """Share of the others' call time that was spent waiting for these commits."""
        return min(1.0, self.others_ns / self.outside_ns) if self.outside_ns > 0 else 0.0


@dataclass(frozen=True)
class Askers:
    """The processes that asked for commits.

    Attributes:
        programs: By program, most commits first.
        n_programs: Number of programs.
        forcing: The group that forces them, at the narrowest level that holds the share, or None.
    """

    programs: list[Asker] = field(default_factory=list)
    n_programs: int = 0
    forcing: Asker | None = None


def study_askers(
    con: duckdb.DuckDBPyConnection,
    families: Families,
    times: Mapping[Key, int],
    *,
    whole: bool = True,
) -> Askers:
    """Sum up the commits by the processes that asked for them.

    Args:
        con: Needs the tables of ``study_commits``.
        families: Groups of each process.
        times: Time of the calls that are shown, by process.
        whole: All calls are shown. Else the processes that made the shown calls are the ones in
            question, and they are not compared with others.
    """
    rows = con.execute(_COMMITS).fetchall()
    study = _Study(con, {(pid, comm): ns for pid, comm, _, ns in rows}, times)
    charges = {(pid, comm): n for pid, comm, n, _ in rows}
    groups = grouped(charges, families, times)
    own: set[int] = set() if whole else {pid for pid, _ in times}
    forcing = []
    for level, of_level in groups.items():
        if not of_level or not of_level[0].charged:
            continue
        top = of_level[0]
        asker = study.asker(top, _next(top, groups, own))
        enough = level == PROCESS or asker.outside_ns >= LEAST_OTHERS * sum(times.values())
        if asker.forces and enough:
            forcing.append((top, asker.others_ns, asker))
    chosen = narrowest((group, ns) for group, ns, _ in forcing)
    programs = [group for group in groups[PROGRAM] if group.charged]
    return Askers(
        programs=[study.asker(group, 0) for group in programs[:SHOWN]],
        n_programs=len(programs),
        forcing=next((study.with_call(g, asker) for g, _, asker in forcing if g is chosen), None),
    )


def _next(top: Group, groups: Mapping[int, list[Group]], own: set[int]) -> int:
    """Return the largest number of commits that a group outside ``top`` asked for.

    A process that asked for few counts with its program: a thousand processes with one commit each
    weigh as much as one process with a thousand.
    """
    rivals = [g for g in groups[top.level] if g.members.keys().isdisjoint(top.members)]
    if top.level == PROCESS:
        few = (g for g in groups[PROGRAM] if g.charged < FORCED_COMMITS * g.n_processes)
        rivals += [g for g in few if g.members.keys().isdisjoint(top.members)]
    return max((g.charged for g in rivals if not g.pids <= own), default=0)


class _Study:
    """The cost of commits, by the processes that asked for them."""

    def __init__(
        self,
        con: duckdb.DuckDBPyConnection,
        lengths: Mapping[Key, int],
        times: Mapping[Key, int],
    ) -> None:
        self._con, self._lengths, self._times = con, lengths, times
        counted = f"SELECT count(*) FROM commit_spans WHERE {_COUNTED}"
        ((self._n,),) = con.execute(counted).fetchall()
        self._waits: dict[Key, Counter[int]] = defaultdict(Counter)
        for pid, comm, waiter, ns in con.execute(_WAITED).fetchall():
            self._waits[pid, comm][waiter] += ns

    def asker(self, group: Group, n_next: int) -> Asker:
        """Return a group and the time that others waited for its commits."""
        inside = group.pids
        waits = (self._waits[key] for key in group.members if key in self._waits)
        others_ns = sum(ns for met in waits for pid, ns in met.items() if pid not in inside)
        return Asker(
            who=group.words,
            name=group.name,
            n=group.charged,
            n_next=n_next,
            n_commits=self._n,
            commit_ns=sum(self._lengths.get(key, 0) for key in group.members),
            others_ns=others_ns,
            outside_ns=sum(ns for (pid, _), ns in self._times.items() if pid not in inside),
        )

    def with_call(self, group: Group, asker: Asker) -> Asker:
        """Add the call, and its path, with which a group asked for most of its commits."""
        pids = sorted(group.pids)
        syscall, n = self._most("syscall", pids)
        path, path_n = self._most("path", pids)
        mostly = syscall if n >= MOSTLY * asker.n else None
        return replace(asker, syscall=mostly, path=path, path_n=path_n)

    def _most(self, column: str, pids: list[int]) -> tuple[str | None, int]:
        row = self._con.execute(_MOSTLY.format(column=column, pids=pids)).fetchone()
        return row or (None, 0)
