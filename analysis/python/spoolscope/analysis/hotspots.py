"""The kinds of files and the directories whose calls took most time."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import duckdb

from spoolscope.analysis.causes import BETWEEN_PROGRAMS
from spoolscope.analysis.spool_names import distinct_names
from spoolscope.traces.pathclass import class_sql, parent_sql

# Kinds and directories are sums of these rows.
_BY_PATH = """
CREATE OR REPLACE TEMP VIEW path_times AS SELECT path_id, cause, ns FROM path_causes WHERE ns > 0
"""

# A call counts for the directory of its file; a call on a directory counts for that directory.
_DIRECTORIES = f"""
CREATE OR REPLACE TEMP TABLE path_dirs AS
WITH known AS (
    SELECT path_id, CAST(sum(n) AS BIGINT) AS n FROM path_causes WHERE path_id IS NOT NULL
    GROUP BY path_id
), dirs AS (SELECT DISTINCT path_id FROM shown_calls WHERE obj_mode & 61440 = 16384)
SELECT k.path_id, k.n, CASE WHEN k.path_id IN (SELECT path_id FROM dirs) THEN p.path
    ELSE {parent_sql("p.path")} END AS dir, coalesce(p.spool, 0) AS spool
FROM known k JOIN paths p USING (path_id) WHERE p.kind = 'spool'
"""

_HOT = f"""
WITH times AS (
    SELECT d.spool, d.dir, t.cause, sum(t.ns) AS ns
    FROM path_dirs d JOIN path_times t USING (path_id) GROUP BY ALL
), hot AS (
    SELECT spool, dir, CAST(sum(ns) AS BIGINT) AS total_ns, arg_max(cause, ns) AS cause,
        CAST(max(ns) AS BIGINT) AS cause_ns
    FROM times WHERE cause NOT IN {{between}} GROUP BY spool, dir ORDER BY total_ns DESC
    LIMIT {{limit}}
), calls AS (
    SELECT spool, dir, CAST(sum(n) AS BIGINT) AS n FROM path_dirs GROUP BY spool, dir
), inside AS (
    SELECT path_id, coalesce(spool, 0) AS spool, {parent_sql("path")} AS dir FROM paths
    WHERE {parent_sql("path")} IN (SELECT dir FROM hot)
), entries AS (
    SELECT spool, dir, count(*) AS entries FROM inside JOIN tree USING (path_id)
    GROUP BY spool, dir
)
SELECT hot.spool, hot.dir, coalesce(entries.entries, 0), calls.n, hot.total_ns, hot.cause,
    hot.cause_ns
FROM hot JOIN calls USING (spool, dir) LEFT JOIN entries USING (spool, dir)
ORDER BY hot.total_ns DESC
"""


@dataclass(frozen=True)
class PathClassTime:
    """Time of all calls on one kind of file, {cause: ns}."""

    name: str
    n: int
    total_ns: int
    causes: dict[str, int]


@dataclass(frozen=True)
class Directory:
    """A directory: names in it at the start, calls in it, their time, and the largest cause.

    Its path is below its spool; with the mount if several spools have one.
    """

    path: str
    entries: int
    n: int
    total_ns: int
    cause: str
    cause_ns: int


def prepare(con: duckdb.DuckDBPyConnection) -> None:
    """Create the tables from which kinds and directories are summed (needs ``path_causes``)."""
    con.execute(_BY_PATH)
    con.execute(_DIRECTORIES)


def path_classes(con: duckdb.DuckDBPyConnection) -> list[PathClassTime]:
    """Return the time by kind of file, the largest first."""
    con.execute(
        "CREATE OR REPLACE TEMP TABLE path_classes AS "
        f"SELECT path_id, {class_sql('path')} AS class FROM paths "
        "WHERE kind = 'spool' AND path_id IN (SELECT path_id FROM path_causes)"
    )
    placed = "coalesce(k.class, CASE WHEN t.path_id IS NULL THEN 'no path' ELSE 'outside' END)"
    counts = dict(
        con.execute(
            f"SELECT {placed} AS name, CAST(sum(n) AS BIGINT) FROM path_causes t "
            "LEFT JOIN path_classes k USING (path_id) GROUP BY ALL"
        ).fetchall()
    )
    found: dict[str, dict[str, int]] = {name: {} for name in counts}
    for name, cause, ns in con.execute(
        f"SELECT {placed} AS name, cause, CAST(sum(ns) AS BIGINT) FROM path_times t "
        "LEFT JOIN path_classes k USING (path_id) GROUP BY ALL"
    ).fetchall():
        found[name][cause] = ns
    rows = [PathClassTime(name, counts[name], sum(c.values()), c) for name, c in found.items()]
    return sorted(rows, key=lambda row: -row.total_ns)


def hot_directories(
    con: duckdb.DuckDBPyConnection, spools: Sequence[Mapping[str, Any]] = (), limit: int = 20
) -> list[Directory]:
    """Return the directories whose calls took longest, waits for other programs left out.

    Args:
        con: Needs the tables of ``prepare``.
        spools: Those of meta.json.
        limit: Largest number of directories.
    """
    rows = con.execute(_HOT.format(limit=limit, between=_sql(BETWEEN_PROGRAMS))).fetchall()
    names = distinct_names(((spool, path) for spool, path, *_ in rows), spools)
    return [Directory(names[spool, path], *rest) for spool, path, *rest in rows]


def _sql(words: tuple[str, ...]) -> str:
    return f"({', '.join(repr(word) for word in words)})"
