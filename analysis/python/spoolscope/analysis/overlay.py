"""Overlaps of intervals, and the state that holds at every instant.

Both are linear in the number of rows and of overlaps, so they serve traces of any length. An
interval is a row with ``from_ns`` and ``to_ns``, the end not included.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import duckdb
import numpy as np
import pyarrow as pa

# Intervals are joined in bins of 67 ms (2^26 ns): a join on the bin and then on time is linear,
# while one on time alone compares all pairs. Only the bin in which the overlap begins counts.
_BIN = 26


def overlaps(left: str, right: str, on: str, columns: str) -> str:
    """Return a query of all overlaps of two tables of intervals.

    Args:
        left: Name of a table; its rows are ``l`` in the other arguments.
        right: Name of a table; its rows are ``r``.
        on: Join condition besides time, e.g. "l.tid = r.tid".
        columns: Columns to select of both; ``from_ns`` and ``to_ns`` of the overlap are added.
    """
    bins = f"unnest(range(from_ns >> {_BIN}, ((to_ns - 1) >> {_BIN}) + 1)) AS bin"
    # Materialized, as a side that is itself a join sometimes makes DuckDB 2.0.0 fail with
    # "dict-surviving cache: global dictionary column changed identity".
    return f"""
WITH l AS MATERIALIZED (SELECT *, {bins} FROM {left} WHERE from_ns < to_ns),
r AS MATERIALIZED (SELECT *, {bins} FROM {right} WHERE from_ns < to_ns)
SELECT {columns}, greatest(l.from_ns, r.from_ns) AS from_ns, least(l.to_ns, r.to_ns) AS to_ns
FROM l JOIN r ON l.bin = r.bin AND {on}
    AND l.bin = greatest(l.from_ns, r.from_ns) >> {_BIN}
    AND l.from_ns < r.to_ns AND r.from_ns < l.to_ns
"""


def one_at_a_time(table: str, key: str, ties: str) -> str:
    """Return a query that keeps at every instant only the row that began first.

    Args:
        table: Intervals, perhaps overlapping; all columns are kept, ``from_ns`` moves.
        key: Columns within which the rows compete.
        ties: Columns that choose one of several rows for the same interval, so that results are
            reproducible.
    """
    return f"""
SELECT * EXCLUDE (before_ns)
    REPLACE (greatest(from_ns, coalesce(before_ns, from_ns)) AS from_ns)
FROM (
    SELECT *, max(to_ns) OVER (PARTITION BY {key} ORDER BY from_ns, to_ns, {ties}
        ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before_ns
    FROM {table}
) WHERE to_ns > coalesce(before_ns, from_ns)
"""


@dataclass(frozen=True)
class Pieces:
    """Intervals in which nothing changes, by id and time; those of one id do not overlap.

    Attributes:
        id: Id of the sleep or commit of the claims; int64, as the next two.
        from_ns: Begin of the piece.
        to_ns: End of the piece.
        held: For each layer, the sum of the claims that hold: one of them, or 0 if none does.
    """

    id: np.ndarray
    from_ns: np.ndarray
    to_ns: np.ndarray
    held: list[np.ndarray]

    def where(self, chosen: np.ndarray) -> "Pieces":
        """Return the chosen pieces."""
        held = [claim[chosen] for claim in self.held]
        return Pieces(self.id[chosen], self.from_ns[chosen], self.to_ns[chosen], held)


def layers(claims: Mapping[str, np.ndarray], n: int) -> Pieces:
    """Cut the claimed intervals into pieces in which nothing changes.

    In SQL this needs a window over twice the claims, which takes four times as long.

    Args:
        claims: Columns ``id``, ``layer`` (from 0), ``claim`` (from 1), ``from_ns`` and ``to_ns``;
            claims of one id and layer that overlap are added up.
        n: Number of layers.
    """
    # The sum of begun less ended claims holds. Of several changes at one instant, the last sum
    # counts; after the others no time passes.
    at = np.concatenate([claims["from_ns"], claims["to_ns"]])
    ids = np.concatenate([claims["id"], claims["id"]])
    order = np.lexsort((at, ids))
    at, ids = at[order], ids[order]
    change = np.concatenate([claims["claim"], -claims["claim"]])[order]
    layer = np.concatenate([claims["layer"], claims["layer"]])[order]
    passing = np.flatnonzero((at[1:] != at[:-1]) & (ids[1:] == ids[:-1]))
    held = [
        np.cumsum(np.where(layer == k, change, 0), dtype=change.dtype)[passing] for k in range(n)
    ]
    pieces = Pieces(ids[passing], at[passing], at[passing + 1], held)
    some = np.logical_or.reduce([claim > 0 for claim in held])
    return pieces if some.all() else pieces.where(some)


def arrays(con: duckdb.DuckDBPyConnection, query: str) -> dict[str, np.ndarray]:
    """Return the columns of a query without nulls; ``fetchnumpy`` would load numpy.ma."""
    table = con.sql(query).to_arrow_table()
    return {name: table[name].to_numpy() for name in table.column_names}


def insert(con: duckdb.DuckDBPyConnection, query: str, rows: Mapping[str, np.ndarray]) -> None:
    """Run a query that reads these columns as the table ``rows``."""
    con.register("rows", pa.table(dict(rows)))
    con.execute(query)
    con.unregister("rows")
