"""Intervals laid over one another, in SQL: which overlap, and what holds at every instant.

Both are linear in the number of rows and of overlaps, so they serve traces of any length. An
interval is a row with ``from_ns`` and ``to_ns``, the end not included.
"""

from collections.abc import Sequence

# Intervals meet in bins of 67 ms (2^26 ns): a join on the bin and then on time is linear, where
# one on time alone compares everything with everything. The bin where both are on counts.
_BIN = 26


def overlaps(left: str, right: str, on: str, columns: str) -> str:
    """Return a query of all overlaps of two tables of intervals.

    Args:
        left: Name of a table; its rows are ``l`` in the other arguments.
        right: Name of a table; its rows are ``r``.
        on: What rows must have in common besides time, e.g. "l.tid = r.tid".
        columns: What to select of both; ``from_ns`` and ``to_ns`` of the overlap are added.
    """
    bins = f"unnest(range(from_ns >> {_BIN}, ((to_ns - 1) >> {_BIN}) + 1)) AS bin"
    # Materialized, as a side that is itself a join makes DuckDB 2.0.0 end in "dict-surviving cache:
    # global dictionary column changed identity" now and then.
    return f"""
WITH l AS MATERIALIZED (SELECT *, {bins} FROM {left} WHERE from_ns < to_ns),
r AS MATERIALIZED (SELECT *, {bins} FROM {right} WHERE from_ns < to_ns)
SELECT {columns}, greatest(l.from_ns, r.from_ns) AS from_ns, least(l.to_ns, r.to_ns) AS to_ns
FROM l JOIN r ON l.bin = r.bin AND {on}
    AND l.bin = greatest(l.from_ns, r.from_ns) >> {_BIN}
    AND l.from_ns < r.to_ns AND r.from_ns < l.to_ns
"""


def one_at_a_time(table: str, key: str, ties: str) -> str:
    """Return a query that leaves at every instant only the row that began first.

    Args:
        table: Intervals, perhaps overlapping; all columns are kept, ``from_ns`` moves.
        key: Columns within which the rows compete.
        ties: Columns by which one of several rows for the very same interval is chosen, so that
            the answer is the same whenever it is asked for.
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


def layers(claims: str, bits: Sequence[int]) -> str:
    """Return a query that cuts what is claimed into pieces in which nothing changes.

    Args:
        claims: A table with ``id``, ``layer`` (from 0), ``claim`` (from 1), ``from_ns`` and
            ``to_ns``; within one id and layer no two may overlap.
        bits: For each layer, how many bits its claims have; 62 in all.

    The columns of the query are id, from_ns, to_ns and ``c0``, ``c1``, ...: the claim that holds
    in each layer, null if none does. The pieces of an id do not overlap.
    """
    # At most one claim of a layer holds at a time, so what began less what ended is its number;
    # one running sum, in which every layer has its own bits, does for all of them. Of several
    # changes at one instant the last has summed all; after the others no time passes.
    shifts = [sum(bits[:layer]) for layer in range(len(bits))]
    places = " ".join(f"WHEN {layer} THEN {shift}" for layer, shift in enumerate(shifts))
    names = ", ".join(
        f"nullif((held >> {shift}) & {(1 << size) - 1}, 0) AS c{layer}"
        for layer, (shift, size) in enumerate(zip(shifts, bits, strict=True))
    )
    claim = f"(CAST(claim AS BIGINT) << CASE layer {places} END)"
    return f"""
WITH changes AS (
    SELECT id, from_ns AS at_ns, {claim} AS change FROM {claims}
    UNION ALL SELECT id, to_ns, -{claim} FROM {claims}
), pieces AS (
    SELECT id, at_ns AS from_ns, lead(at_ns) OVER w AS to_ns,
        CAST(sum(change) OVER (w ROWS UNBOUNDED PRECEDING) AS BIGINT) AS held
    FROM changes WINDOW w AS (PARTITION BY id ORDER BY at_ns)
)
SELECT id, from_ns, to_ns, {names} FROM pieces WHERE held > 0 AND to_ns > from_ns
"""
