"""Latency by call: exact percentiles, distribution curves, and the rule of enough events.

A percentile p needs at least 10 / (1 - p) events, else it says more about chance than about
the machine: p99 needs 1,000 calls, p99.9 needs 10,000. Unsupported ones are None.
"""

from dataclasses import dataclass

import duckdb
import numpy as np

QUANTILES = (0.5, 0.9, 0.99, 0.999)
IN_FLIGHT = 1 << 3  # SPSC_CALL_IN_FLIGHT: the recording ended before the call returned

SYSCALL_CLASSES: dict[str, tuple[str, ...]] = {
    "sync": ("fsync", "fdatasync", "sync_file_range", "syncfs", "sync", "msync"),
    "open": ("open", "openat", "openat2", "creat"),
    "rename": ("rename", "renameat", "renameat2"),
    "link": ("link", "linkat", "symlink", "symlinkat"),
    "unlink": ("unlink", "unlinkat", "rmdir"),
    "list": ("getdents", "getdents64"),
    "stat": ("stat", "lstat", "fstat", "newfstatat", "statx", "access", "faccessat", "faccessat2"),
    "read": ("read", "pread64", "readv", "preadv", "preadv2"),
    "write": ("write", "pwrite64", "writev", "pwritev", "pwritev2"),
    "lock": ("fcntl", "flock"),
}
"""Families of calls that are shown together; every other call belongs to "other"."""


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
    """Tell whether n events support a quantile: n >= 10 / (1 - quantile)."""
    return n * (1 - quantile) >= 10 - 1e-9


def class_of(syscall: str) -> str:
    """Return the family of a call."""
    return next((name for name, calls in SYSCALL_CLASSES.items() if syscall in calls), "other")


def latencies(con: duckdb.DuckDBPyConnection) -> list[Latency]:
    """Return the latencies by call, the call with the largest total first.

    Calls still in flight when the recording ended count in n and total, not in percentiles.
    """
    done = f"FILTER (flags_seen & {IN_FLIGHT} = 0)"
    rows = con.execute(
        f"SELECT syscall, count(*), CAST(sum(dur_ns) AS BIGINT), avg(dur_ns), count(*) {done}, "
        f"quantile_cont(dur_ns, {list(QUANTILES)}) {done}, max(dur_ns) "
        "FROM syscalls GROUP BY syscall ORDER BY 3 DESC, 1"
    ).fetchall()
    return [
        Latency(
            syscall=name,
            n=n,
            total_ns=total,
            mean_ns=mean,
            **dict(zip(_FIELDS, _percentiles(n_done, values), strict=True)),
            max_ns=longest,
        )
        for name, n, total, mean, n_done, values, longest in rows
    ]


_FIELDS = ("p50_ns", "p90_ns", "p99_ns", "p999_ns")


def _percentiles(n: int, values: list[float] | None) -> tuple[int | None, ...]:
    pairs = zip(QUANTILES, values or [0.0] * len(QUANTILES), strict=True)
    return tuple(round(value) if supported(n, q) else None for q, value in pairs)


def class_sql(column: str) -> str:
    """Return a DuckDB expression that gives the family of the call in ``column``."""
    cases = " ".join(
        f"WHEN {column} IN ({', '.join(repr(call) for call in calls)}) THEN '{name}'"
        for name, calls in SYSCALL_CLASSES.items()
    )
    return f"CASE {cases} ELSE 'other' END"


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


def curves(con: duckdb.DuckDBPyConnection, minimum: int = 100) -> list[Curve]:
    """Return a distribution for each family of calls with at least ``minimum`` calls."""
    rows = con.execute(
        f"SELECT {class_sql('syscall')} AS family, dur_ns FROM syscalls "
        f"WHERE flags_seen & {IN_FLIGHT} = 0"
    ).fetchnumpy()
    families, durations = np.asarray(rows["family"]), np.asarray(rows["dur_ns"])
    found = (curve(name, durations[families == name]) for name in (*SYSCALL_CLASSES, "other"))
    return [c for c in found if c.n >= minimum]
