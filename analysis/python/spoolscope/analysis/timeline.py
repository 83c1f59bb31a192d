"""Time in calls over the recording: by cause and second, with the commits."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import duckdb

from spoolscope.analysis.causes import BETWEEN_PROGRAMS, CAUSES, MACHINE

BIN_NS = 1_000_000_000
MAX_BINS = 300


@dataclass(frozen=True)
class Timeline:
    """Bins of equal length.

    Attributes:
        bin_ns: Length of a bin.
        causes: {cause: [ns per bin]}; a wait counts in the bin where it began.
        calls: Calls begun per bin.
        commits: Commits begun per bin.
        commit_ns: Sum of their lengths per bin.
    """

    bin_ns: int
    causes: dict[str, list[int]]
    calls: list[int]
    commits: list[int]
    commit_ns: list[int]

    @property
    def charged_ns(self) -> list[int]:
        """Time per bin without the waits of programs for programs."""
        bars = (bins for cause, bins in self.causes.items() if cause not in BETWEEN_PROGRAMS)
        return [sum(values) for values in zip(*bars, strict=True)]

    @property
    def n_bins(self) -> int:
        """Number of bins."""
        return len(self.calls)


def timeline(con: duckdb.DuckDBPyConnection, meta: Mapping[str, Any]) -> Timeline:
    """Bin the time of a split trace from its begin on (needs the table ``named_waits``)."""
    first = int(meta.get("start_ns", 0))
    (last,) = con.execute("SELECT max(ts_ns) FROM shown_calls").fetchone() or (None,)
    last = max(first, last or 0)
    bin_ns = BIN_NS * max(1, -(-(last - first + 1) // (MAX_BINS * BIN_NS)))
    n = int((last - first) // bin_ns) + 1
    place = f"least({n - 1}, greatest(0, (ts_ns - {first}) // {bin_ns}))"
    causes = {cause: [0] * n for cause in CAUSES}
    for bin_, cause, ns in con.execute(
        f"SELECT {place} AS bin, cause, CAST(sum(dur_ns) AS BIGINT) FROM named_waits "
        "WHERE shown GROUP BY ALL"
    ).fetchall():
        causes[cause][bin_] = ns
    calls = [0] * n
    machine = ", ".join(f"CAST(sum({ns}) AS BIGINT)" for ns in MACHINE.values())
    for bin_, number, *times in con.execute(
        f"SELECT {place} AS bin, count(*), {machine} FROM shown_calls GROUP BY bin"
    ).fetchall():
        calls[bin_] = number
        for cause, ns in zip(MACHINE, times, strict=True):
            causes[cause][bin_] = ns
    commits, commit_ns = [0] * n, [0] * n
    for bin_, number, ns in con.execute(
        f"SELECT {place} AS bin, count(*), CAST(sum(dur_ns) AS BIGINT) FROM commit_spans "
        "GROUP BY bin"
    ).fetchall():
        commits[bin_], commit_ns[bin_] = number, ns
    shown = {cause: bins for cause, bins in causes.items() if any(bins)}
    return Timeline(bin_ns, shown, calls, commits, commit_ns)
