"""Processes as parts of all time: the largest each by itself, the others of a program together."""

import duckdb

from spoolscope.analysis.causes import BETWEEN_PROGRAMS, one_of

LARGEST = 8
"""Number of processes that may be parts by themselves: the largest ones."""
LEAST_SHARE = 0.02
"""Share of all time below which a process is no part by itself."""

# A process has the name of the program with most of its time, without waits for other programs.
_PARTS = f"""
CREATE OR REPLACE TEMP TABLE process_parts AS
WITH times AS (
    SELECT pid, comm, sum(ns) AS ns FROM (
        SELECT pid, comm, sum(dur_ns) AS ns FROM shown_calls GROUP BY ALL
        UNION ALL SELECT pid, comm, -sum(dur_ns) FROM named_waits
        WHERE shown AND {one_of("cause", BETWEEN_PROGRAMS)} GROUP BY ALL
    ) GROUP BY ALL
), processes AS (
    SELECT pid, arg_max(comm, (ns, comm)) AS comm, sum(ns) AS ns FROM times GROUP BY pid
), ranked AS (
    SELECT *, row_number() OVER (ORDER BY ns DESC, pid) <= {LARGEST}
        AND ns >= {LEAST_SHARE} * sum(ns) OVER () AS large
    FROM processes
), rest AS (
    SELECT *, large OR count(*) FILTER (NOT large) OVER of_program = 1 AS alone,
        count(*) FILTER (NOT large) OVER of_program AS n_small,
        count(*) OVER of_program AS n_all
    FROM ranked WINDOW of_program AS (PARTITION BY comm)
), named AS (
    SELECT pid, CASE WHEN alone THEN comm || ' (' || pid || ')'
        WHEN n_small < n_all THEN comm || ' (' || format('{{:,}}', n_small) || ' others)'
        ELSE comm || ' (' || format('{{:,}}', n_all) || ' processes)' END AS name FROM rest
)
SELECT pid, name, CAST(dense_rank() OVER (ORDER BY name) AS INTEGER) AS part FROM named
"""


def make_process_parts(con: duckdb.DuckDBPyConnection) -> None:
    """Create ``process_parts``: the part of each process, its number and name."""
    con.execute(_PARTS)


def part_names(con: duckdb.DuckDBPyConnection) -> dict[int, str]:
    """Return the names of the parts by number, such as "lmtp (4711)" or "lmtp (312 others)"."""
    return dict(con.execute("SELECT DISTINCT part, name FROM process_parts").fetchall())
