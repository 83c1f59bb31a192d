"""Costs of finding names: reads, locks and CPU time of directories, with their size and index."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from posixpath import basename
from typing import Any

import duckdb

from spoolscope.analysis.spool_names import distinct_names
from spoolscope.analysis.wording import count, percent
from spoolscope.traces.calls import of_effect, of_kind
from spoolscope.traces.pathclass import parent_sql

SHOWN = 20
WORTH_SAYING = 0.01
"""Least share of the time in calls for which a directory is worth a sentence."""
FEW_SAMPLES = 5
"""Least number of samples from which CPU time is more than a guess."""
MOSTLY = 0.5
"""Share from which on a statement about a part is made about the whole."""

# The inode of the searched directory is recorded for lookups, that of the locked one for locks.
# Where neither is known, directory and name are those of the path given to the call. If a call
# fails as a name is missing, or makes the name, the last name of its path was absent.
_WAITS = f"""
CREATE OR REPLACE TEMP TABLE directory_waits AS
WITH waits_there AS (
    SELECT cause, ts_ns, dur_ns, tid, dir_id, path_id,
        syscall IN {of_effect("lists")} AS lists,
        coalesce(name_id, CASE WHEN dir_id IS NULL THEN path_id END) AS name_id,
        errno = 2 OR errno = 0 AND (syscall IN {of_kind("mkdir")}
            OR syscall IN {of_kind("open")} AND flags & 192 = 192) AS makes_or_lacks
    FROM named_waits
    WHERE shown AND cause IN ('lookup_io', 'dir_lock')
), locks AS (
    SELECT tid, ts_ns, ts_ns + dur_ns AS until_ns, dev, ino FROM waits
    WHERE object = 'inode' AND dur_ns IS NOT NULL
), met AS (
    SELECT w.*, CASE WHEN l.until_ns > w.ts_ns THEN l.dev END AS dev,
        CASE WHEN l.until_ns > w.ts_ns THEN l.ino END AS ino
    FROM waits_there w ASOF LEFT JOIN locks l ON l.tid = w.tid AND l.ts_ns <= w.ts_ns
), inodes AS (
    SELECT dev, ino, arg_max(path_id, at_ns) AS path_id FROM (
        SELECT dev, ino, path_id, 0 AS at_ns FROM tree
        WHERE mode & 61440 = 16384 AND ino IN (SELECT ino FROM met)
        UNION ALL SELECT dev, ino, path_id, ts_ns FROM syscalls
        WHERE obj_mode & 61440 = 16384 AND ino IN (SELECT ino FROM met) AND path_id IS NOT NULL
    ) GROUP BY ALL
), met_paths AS (  -- of a large spool the calls meet few names
    SELECT path_id, path, spool FROM paths WHERE kind = 'spool' AND path_id IN (
        SELECT unnest([name_id, path_id, dir_id]) FROM met UNION ALL SELECT path_id FROM inodes)
)
SELECT coalesce(CASE WHEN m.cause = 'dir_lock' THEN locked.path ELSE searched.path END,
        {{parent}}) AS dir, coalesce(CASE WHEN m.cause = 'dir_lock' THEN locked.spool
        ELSE searched.spool END, given.spool) AS spool, m.cause,
    CASE WHEN m.cause = 'lookup_io' THEN name.path END AS name,
    coalesce(m.makes_or_lacks AND m.name_id = m.path_id, false) AS absent,
    count(*) AS n, CAST(sum(m.dur_ns) AS BIGINT) AS ns
FROM met m LEFT JOIN met_paths name ON name.path_id = m.name_id
LEFT JOIN met_paths given ON given.path_id = m.path_id
LEFT JOIN met_paths searched ON searched.path_id = m.dir_id
LEFT JOIN inodes i ON i.dev = m.dev AND i.ino = m.ino
LEFT JOIN met_paths locked ON locked.path_id = i.path_id
GROUP BY ALL
"""

# Samples of calls that were finding, adding or removing a name: removal finds the entry first.
_SAMPLED = """
INSERT INTO directory_waits
SELECT {parent}, p.spool, 'cpu', NULL, false, count(*), CAST(count(*) * {ns_per_sample} AS BIGINT)
FROM samples s JOIN cpu_stacks k USING (stack_id)
JOIN waited c ON c.tid = s.tid AND c.seq = s.seq JOIN paths p ON p.path_id = c.path_id
WHERE k.class IN ('lookup', 'dir_change') AND p.kind = 'spool' AND c.shown GROUP BY ALL
"""

_COSTS = f"""
WITH by_name AS (
    SELECT coalesce(spool, 0) AS spool, dir, name, cause, sum(n) AS n, sum(ns) AS ns,
        sum(ns) FILTER (absent) AS absent_ns
    FROM directory_waits WHERE dir IS NOT NULL GROUP BY ALL
)
SELECT spool, dir, CAST(coalesce(sum(ns) FILTER (cause = 'lookup_io'), 0) AS BIGINT),
    CAST(coalesce(sum(ns) FILTER (cause = 'dir_lock'), 0) AS BIGINT),
    CAST(coalesce(sum(ns) FILTER (cause = 'cpu'), 0) AS BIGINT), CAST(sum(n) AS BIGINT),
    CAST(coalesce(sum(absent_ns) FILTER (cause = 'lookup_io'), 0) AS BIGINT),
    arg_max(name, ns) FILTER (name IS NOT NULL),
    CAST(coalesce(max(ns) FILTER (name IS NOT NULL), 0) AS BIGINT),
    CAST(coalesce(sum(n) FILTER (cause = 'cpu'), 0) AS BIGINT)
FROM by_name GROUP BY spool, dir ORDER BY sum(ns) DESC, dir, spool LIMIT {SHOWN}
"""

_CHANGES = of_effect("makes", "links", "renames", "removes")
_RENAMES = f"syscall IN {of_effect('renames')}"
_BOTH_STAY = "(coalesce(flags, 0) & 2 = 2 OR path_id = path2_id)"
"""A rename with RENAME_EXCHANGE, or of a name to itself."""

# Names at the snapshot and at the end. A call that makes a name may find it there: the last call
# that made or removed a name tells whether it is there, not the number of such calls.
_ENTRIES = f"""
WITH wanted AS MATERIALIZED (
    SELECT path_id, coalesce(spool, 0) AS spool, {{parent}} AS dir FROM paths p
    WHERE kind = 'spool' AND (coalesce(spool, 0), {{parent}}) IN ({{places}})
), changing AS (
    SELECT path_id, path2_id, syscall, flags, ts_ns + dur_ns AS at_ns FROM syscalls
    WHERE errno = 0 AND (syscall IN {_CHANGES}
        OR syscall IN {of_kind("open")} AND (syscall = 'creat' OR flags & 64 = 64))
), changes AS (
    SELECT at_ns, unnest([path_id, path2_id]) AS path_id, unnest([
        CASE WHEN {_RENAMES} THEN {_BOTH_STAY} ELSE syscall NOT IN {of_effect("removes")} END,
        true]) AS there
    FROM changing
), last AS (
    SELECT path_id, arg_max(there, at_ns) AS there FROM changes SEMI JOIN wanted USING (path_id)
    GROUP BY path_id
), start AS (SELECT DISTINCT path_id FROM tree SEMI JOIN wanted USING (path_id))
SELECT w.spool, w.dir, count(s.path_id),
    count(*) FILTER (coalesce(l.there, s.path_id IS NOT NULL))
FROM wanted w LEFT JOIN start s USING (path_id) LEFT JOIN last l USING (path_id)
GROUP BY w.spool, w.dir
"""

INDEX = {
    "none": "no index",
    "hash": "a hash index (dir_index)",
    "tree": "a tree",
    "unknown": "unknown",
}
"""Ways in which a filesystem finds a name; without an index it reads the whole directory."""


@dataclass(frozen=True)
class LookupCost:
    """The cost of finding names in one directory.

    Attributes:
        path: The directory, below its spool; with the mount if several spools have one.
        entries: Number of names at the snapshot or at the end, the larger; None without a snapshot.
        index: A key of ``INDEX``.
        lookup_io_ns: Time waiting for reads of its blocks, to find a name.
        dir_lock_ns: Time waiting for its lock.
        cpu_ns: CPU time of finding names in it, estimated from samples; 0 without them.
        n: Number of these waits and samples.
        share: All three times as a share of the time in calls without file locks.
        absent_ns: Part of lookup_io_ns for absent names.
        name: The name that most of lookup_io_ns was for; None if no name is known.
        name_ns: That part.
        samples: Number of samples that cpu_ns is estimated from.
    """

    path: str
    entries: int | None
    index: str
    lookup_io_ns: int
    dir_lock_ns: int
    cpu_ns: int
    n: int
    share: float
    absent_ns: int = 0
    name: str | None = None
    name_ns: int = 0
    samples: int = 0

    @property
    def guessed(self) -> bool:
        """True if a few samples are the only evidence of a cost."""
        measured = self.lookup_io_ns or self.dir_lock_ns
        return not measured and self.samples < FEW_SAMPLES

    @property
    def reads_for(self) -> str:
        """The names that most of the reads were for, with the part; empty if none is half."""
        if not self.lookup_io_ns:
            return ""
        name, absent = self.name_ns / self.lookup_io_ns, self.absent_ns / self.lookup_io_ns
        if self.name is not None and name >= MOSTLY:
            return f"{percent(name, 0)} for {self.name}"
        return f"{percent(absent, 0)} for names that were not there" if absent >= MOSTLY else ""

    @property
    def total_ns(self) -> int:
        """Sum of the three times."""
        return self.lookup_io_ns + self.dir_lock_ns + self.cpu_ns

    @property
    def sentence(self) -> str:
        """The cost in one sentence."""
        name = f"the directory {self.path}" if self.path else "the top of the spool"
        size = "" if self.entries is None else f" with {count(self.entries)} names"
        without = " and without dir_index" if self.index == "none" else ""
        said = f"{name}{size}{without} costs {percent(self.share, 0)} of the time in calls"
        said = f"{said[0].upper()}{said[1:]} by finding names in it."
        tell = self.reads_for and self.lookup_io_ns >= MOSTLY * self.total_ns
        return f"{said} Mostly it waits for its blocks, {self.reads_for}." if tell else said


def find_directory_waits(con: duckdb.DuckDBPyConnection, ns_per_sample: float | None) -> None:
    """Create ``directory_waits``.

    Args:
        con: Needs ``waited``, ``named_waits`` and, if there are samples, ``cpu_stacks``.
        ns_per_sample: Time on the CPU that one sample stands for; None without samples.
    """
    parent = f"CASE WHEN m.lists THEN given.path ELSE {parent_sql('given.path')} END"
    con.execute(_WAITS.format(parent=parent))
    if ns_per_sample:
        parent = parent_sql("p.path")
        con.execute(_SAMPLED.format(parent=parent, ns_per_sample=ns_per_sample))


def study_lookups(
    con: duckdb.DuckDBPyConnection, meta: Mapping[str, Any], all_ns: int
) -> list[LookupCost]:
    """Return the directories in which finding names took longest.

    Args:
        con: Needs ``directory_waits``.
        meta: meta.json of the trace.
        all_ns: The time that shares are of.
    """
    spools = meta.get("spools") or []
    rows = con.execute(_COSTS).fetchall()
    places = [(int(spool), str(path)) for spool, path, *_ in rows]
    sizes = _entries(con, places) if meta.get("counts", {}).get("tree") else {}
    names = distinct_names(places, spools)
    return [
        LookupCost(
            path=names[spool, path],
            entries=sizes.get((spool, path)),
            index=_index(spools, spool),
            lookup_io_ns=read,
            dir_lock_ns=locked,
            cpu_ns=cpu,
            n=n,
            share=(read + locked + cpu) / all_ns if all_ns else 0.0,
            absent_ns=absent,
            name=name and basename(name),
            name_ns=name_ns,
            samples=samples,
        )
        for spool, path, read, locked, cpu, n, absent, name, name_ns, samples in rows
    ]


def worth_saying(costs: Sequence[LookupCost]) -> list[str]:
    """Return a sentence on each directory with a share of ``WORTH_SAYING`` or more."""
    return [cost.sentence for cost in costs if cost.share >= WORTH_SAYING]


def _index(spools: Sequence[Mapping[str, Any]], number: int) -> str:
    if not spools:
        return "unknown"
    spool = spools[number]
    if not str(spool.get("fstype", "")).startswith("ext"):
        return "tree"
    if (features := spool.get("features")) is None:
        return "unknown"
    return "hash" if "dir_index" in features else "none"


def _entries(
    con: duckdb.DuckDBPyConnection, places: Sequence[tuple[int, str]]
) -> dict[tuple[int, str], int]:
    if not places:
        return {}
    quoted = ", ".join("({}, '{}')".format(n, path.replace("'", "''")) for n, path in places)
    rows = con.execute(_ENTRIES.format(parent=parent_sql("path"), places=quoted)).fetchall()
    return dict.fromkeys(places, 0) | {(n, path): max(start, end) for n, path, start, end in rows}
