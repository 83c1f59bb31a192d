"""The kinds of files and the directories whose calls took most time."""

from dataclasses import dataclass

import duckdb

from spoolscope.analysis.causes import BETWEEN_PROGRAMS
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
    ELSE {parent_sql("p.path")} END AS dir
FROM known k JOIN paths p USING (path_id) WHERE p.kind = 'spool'
"""

_HOT = f"""
WITH times AS (
    SELECT d.dir, t.cause, sum(t.ns) AS ns FROM path_dirs d JOIN path_times t USING (path_id)
    GROUP BY ALL
), hot AS (
    SELECT dir, CAST(sum(ns) AS BIGINT) AS total_ns, arg_max(cause, ns) AS cause,
        CAST(max(ns) AS BIGINT) AS cause_ns
    FROM times WHERE cause NOT IN {{between}} GROUP BY dir ORDER BY total_ns DESC LIMIT {{limit}}
), calls AS (
    SELECT dir, CAST(sum(n) AS BIGINT) AS n FROM path_dirs GROUP BY dir
), inside AS (
    SELECT path_id, {parent_sql("path")} AS dir FROM paths
    WHERE {parent_sql("path")} IN (SELECT dir FROM hot)
), entries AS (
    SELECT dir, count(*) AS entries FROM inside JOIN tree USING (path_id) GROUP BY dir
)
SELECT hot.dir, coalesce(entries.entries, 0), calls.n, hot.total_ns, hot.cause, hot.cause_ns
FROM hot JOIN calls USING (dir) LEFT JOIN entries USING (dir) ORDER BY hot.total_ns DESC
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
    """A directory: names in it at the start, calls in it, their time, and the largest cause."""

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


def hot_directories(con: duckdb.DuckDBPyConnection, limit: int = 20) -> list[Directory]:
    """Return the directories whose calls took longest, waits for other programs left out."""
    return [
        Directory(*row)
        for row in con.execute(_HOT.format(limit=limit, between=_sql(BETWEEN_PROGRAMS))).fetchall()
    ]


def _sql(words: tuple[str, ...]) -> str:
    return f"({', '.join(repr(word) for word in words)})"
