"""Latency by call: exact percentiles, distribution curves, and the rule of enough events.

A percentile p needs at least 10 / (1 - p) events, else it shows chance more than the machine: p99
needs 1,000 calls, p99.9 needs 10,000. Unsupported ones are None.
"""

from dataclasses import dataclass

import duckdb
import numpy as np

from spoolscope.traces.calls import CALLS, FAMILIES, of_family
from spoolscope.traces.constants import CALL_IN_FLIGHT

QUANTILES = (0.5, 0.9, 0.99, 0.999)
IN_FLIGHT = CALL_IN_FLIGHT  # the recording ended before the call returned

SYSCALL_CLASSES = {family: of_family(family) for family in FAMILIES if family != "other"}
"""Families of calls that are shown together; every other call belongs to "other"."""

NO_LOCKS = f"syscall NOT IN {SYSCALL_CLASSES['lock']}"
"""SQL: true unless the call is one in which programs wait for locks, perhaps for minutes."""


@dataclass(frozen=True)
class Latency:
    """Latencies of one call, in ns; a percentile without enough events is None."""

    syscall: str
    n: int
    total_ns: int
    mean_ns: float
    p50_ns: int | None
    p90_ns: int | None
    p99_ns: int | None
    p999_ns: int | None
    max_ns: int


@dataclass(frozen=True)
class Curve:
    """A cumulative distribution: share of calls (y) that took at most x ns, with n calls."""

    name: str
    n: int
    x_ns: list[int]
    share: list[float]


def supported(n: int, quantile: float) -> bool:
    """Return True if n events support a quantile: n >= 10 / (1 - quantile)."""
    return n * (1 - quantile) >= 10 - 1e-9


def class_of(syscall: str) -> str:
    """Return the family of a call."""
    return CALLS[syscall].family if syscall in CALLS else "other"


def latencies(con: duckdb.DuckDBPyConnection) -> list[Latency]:
    """Return the latencies by call, the largest total first (needs ``sum_calls``).

    Calls still in flight when the recording ended count in n and total, not in percentiles.
    """
    quantiles = exact_quantiles(con)
    rows = con.execute(
        "SELECT syscall, n, n_done, dur_ns, max_ns FROM call_totals ORDER BY dur_ns DESC, syscall"
    ).fetchall()
    return [
        Latency(
            syscall=name,
            n=n,
            total_ns=total,
            mean_ns=total / n,
            **dict(zip(_FIELDS, _percentiles(n_done, quantiles.get(name)), strict=True)),
            max_ns=longest,
        )
        for name, n, n_done, total, longest in rows
    ]


# Width of the bucket of a length, 1/256 to 1/16 of it: a few buckets hold the quantiles.
_BUCKET = (
    "CASE WHEN dur_ns < 4096 THEN dur_ns >> 4 WHEN dur_ns < 65536 THEN 256 + (dur_ns >> 8) "
    "WHEN dur_ns < 1048576 THEN 512 + (dur_ns >> 12) WHEN dur_ns < 16777216 THEN "
    "768 + (dur_ns >> 16) WHEN dur_ns < 268435456 THEN 1024 + (dur_ns >> 20) "
    "ELSE 1280 + (dur_ns >> 24) END"
)

# Number and sum of the lengths by bucket, in one pass over all calls.
_LENGTHS = f"""
CREATE OR REPLACE TEMP TABLE call_lengths AS
SELECT syscall, flags_seen & {IN_FLIGHT} = 0 AS done, CAST({_BUCKET} AS INTEGER) AS bucket,
    count(*) AS n, CAST(sum(dur_ns) AS BIGINT) AS dur_ns, max(dur_ns) AS max_ns,
    CAST(coalesce(sum(stolen_ns), 0) AS BIGINT) AS stolen_ns
FROM shown_calls GROUP BY ALL
"""

# The calls that are not in waited were on the CPU for all of their length.
_TOTALS = """
CREATE OR REPLACE TEMP TABLE call_totals AS
WITH lengths AS (
    SELECT syscall, sum(n) AS n, coalesce(sum(n) FILTER (done), 0) AS n_done,
        sum(dur_ns) AS dur_ns, max(max_ns) AS max_ns, sum(stolen_ns) AS stolen_ns
    FROM call_lengths GROUP BY syscall
), off AS (
    SELECT syscall, sum(dur_ns - oncpu_ns) AS off_ns, sum(blocked_ns) AS blocked_ns,
        sum(runq_ns) AS runq_ns, sum(preempted_ns) AS preempted_ns
    FROM waited WHERE shown GROUP BY syscall
)
SELECT syscall, CAST(n AS BIGINT) AS n, CAST(n_done AS BIGINT) AS n_done,
    CAST(dur_ns AS BIGINT) AS dur_ns, CAST(dur_ns - coalesce(off_ns, 0) AS BIGINT) AS oncpu_ns,
    CAST(coalesce(blocked_ns, 0) AS BIGINT) AS blocked_ns,
    CAST(coalesce(runq_ns, 0) AS BIGINT) AS runq_ns,
    CAST(coalesce(preempted_ns, 0) AS BIGINT) AS preempted_ns,
    CAST(stolen_ns AS BIGINT) AS stolen_ns, max_ns
FROM lengths LEFT JOIN off USING (syscall)
"""

# The two calls between which each quantile lies, by rank from 0, and the buckets that hold them.
_RANKS = f"""
CREATE OR REPLACE TEMP TABLE quantile_buckets AS
WITH summed AS (
    SELECT syscall, bucket, n, CAST(sum(n) OVER w AS BIGINT) - n AS before,
        CAST(sum(n) OVER (PARTITION BY syscall) AS BIGINT) AS total
    FROM call_lengths WHERE done WINDOW w AS (PARTITION BY syscall ORDER BY bucket)
), wanted AS (
    SELECT DISTINCT syscall, q, unnest([floor((total - 1) * q), ceil((total - 1) * q)]) AS rank
    FROM (SELECT DISTINCT syscall, total, unnest({list(QUANTILES)}) AS q FROM summed)
)
SELECT s.syscall, s.bucket, w.q, CAST(w.rank - s.before AS BIGINT) AS place
FROM summed s JOIN wanted w ON w.syscall = s.syscall
    AND w.rank >= s.before AND w.rank < s.before + s.n
"""

_PLACES = f"""
WITH picked AS (
    SELECT s.syscall, s.bucket, s.dur_ns, row_number() OVER (
        PARTITION BY s.syscall, s.bucket ORDER BY s.dur_ns) - 1 AS place
    FROM (SELECT syscall, CAST({_BUCKET} AS INTEGER) AS bucket, dur_ns FROM shown_calls
        WHERE flags_seen & {IN_FLIGHT} = 0) s
    SEMI JOIN quantile_buckets k ON k.syscall = s.syscall AND k.bucket = s.bucket
)
SELECT k.syscall, k.q, min(dur_ns), max(dur_ns)
FROM quantile_buckets k JOIN picked p USING (syscall, bucket, place) GROUP BY ALL
"""


def sum_calls(con: duckdb.DuckDBPyConnection) -> None:
    """Create ``call_totals``, one row for each name of a call, and ``call_lengths`` by bucket.

    Needs ``waited`` and ``shown_calls``.
    """
    con.execute(_LENGTHS)
    con.execute(_TOTALS)


def exact_quantiles(con: duckdb.DuckDBPyConnection) -> dict[str, list[float]]:
    """Return {call: [value of each of QUANTILES]} over the calls that returned.

    They equal those of DuckDB's quantile_cont, which keeps all lengths in memory; here lengths are
    counted in buckets first, and only the buckets with a quantile are sorted.
    """
    con.execute(_RANKS)
    totals = dict(con.execute("SELECT syscall, n_done FROM call_totals").fetchall())
    found: dict[str, dict[float, float]] = {}
    for syscall, q, low, high in con.execute(_PLACES).fetchall():
        rank = (totals[syscall] - 1) * float(q)
        found.setdefault(syscall, {})[float(q)] = low + (high - low) * (rank - int(rank))
    return {syscall: [values[q] for q in QUANTILES] for syscall, values in found.items()}


_FIELDS = ("p50_ns", "p90_ns", "p99_ns", "p999_ns")


def _percentiles(n: int, values: list[float] | None) -> tuple[int | None, ...]:
    pairs = zip(QUANTILES, values or [0.0] * len(QUANTILES), strict=True)
    return tuple(round(value) if supported(n, q) else None for q, value in pairs)


def curve(name: str, durations_ns: np.ndarray, points: int = 400) -> Curve:
    """Return the cumulative distribution, thinned evenly but dense towards the tail."""
    n = len(durations_ns)
    if n == 0:
        return Curve(name, 0, [], [])
    ordered = np.sort(durations_ns)
    body = np.linspace(0, n - 1, points)
    tail = n - np.geomspace(1, n, points)
    index = np.unique(np.concatenate([body, tail]).astype(np.int64).clip(0, n - 1))
    return Curve(name, n, ordered[index].tolist(), ((index + 1) / n).tolist())


def family_latencies(names: np.ndarray, durations_ns: np.ndarray) -> list[Latency]:
    """Return the latencies by family of calls, the largest total first; families are names."""
    found = []
    for family, values in _by_family(names, durations_ns).items():
        quantiles = np.percentile(values, [100 * q for q in QUANTILES]).tolist()
        percentiles = _percentiles(len(values), quantiles)
        found.append(
            Latency(
                syscall=family,
                n=len(values),
                total_ns=int(values.sum()),
                mean_ns=float(values.mean()),
                **dict(zip(_FIELDS, percentiles, strict=True)),
                max_ns=int(values.max()),
            )
        )
    return sorted(found, key=lambda latency: -latency.total_ns)


def family_curves(names: np.ndarray, durations_ns: np.ndarray, minimum: int = 100) -> list[Curve]:
    """Return a distribution for each family of calls with at least ``minimum`` calls."""
    grouped = _by_family(names, durations_ns)
    return [curve(name, values) for name, values in grouped.items() if len(values) >= minimum]


def _by_family(names: np.ndarray, durations_ns: np.ndarray) -> dict[str, np.ndarray]:
    known, index = np.unique(names.astype(str), return_inverse=True)
    families = np.array([class_of(str(name)) for name in known], dtype=object)[index]
    grouped = ((name, durations_ns[families == name]) for name in (*SYSCALL_CLASSES, "other"))
    return {name: values for name, values in grouped if len(values)}


def curves(con: duckdb.DuckDBPyConnection, minimum: int = 100) -> list[Curve]:
    """Return a distribution for each family of calls with at least ``minimum`` calls.

    Calls still in flight are left out. One family is in memory at a time, 8 bytes a call.
    """
    found = []
    names = [name for (name,) in con.execute("SELECT syscall FROM call_totals").fetchall()]
    for family in (*SYSCALL_CLASSES, "other"):
        calls = [name for name in names if class_of(name) == family]
        durations = con.execute(
            f"SELECT dur_ns FROM shown_calls WHERE flags_seen & {IN_FLIGHT} = 0 "
            "AND list_contains(?, syscall)",
            [calls],
        ).fetchnumpy()["dur_ns"]
        if len(durations) >= minimum:
            found.append(curve(family, np.asarray(durations)))
    return found
