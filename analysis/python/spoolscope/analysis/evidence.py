"""Facts that rules of insights use besides the causes, computed in Python."""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import duckdb
import numpy as np

from spoolscope.analysis.answerers import Answerer, answerers
from spoolscope.analysis.askers import Asker
from spoolscope.analysis.cpu_holders import (
    CpuHolder,
    find_held_cpus,
    measurement_ns,
    taken_by_strangers,
    worst_holder,
)
from spoolscope.analysis.disk_holders import DiskHolder, DiskUse, disk_holders
from spoolscope.analysis.families import Families, Key
from spoolscope.analysis.services import Window, by_kind, disk_turns
from spoolscope.traces.trace import Trace

_LIMITS = {
    "read_iops": "{:,} reads",
    "write_iops": "{:,} writes",
    "read_bps": "{:,} bytes read",
    "write_bps": "{:,} bytes written",
}
"""Words for what a limit on block I/O allows per second, by its name in meta.json."""

_HELD_BACK = """
SELECT cgroup, dev, count(*) AS n FROM block_ios
WHERE held_back AND cgroup IS NOT NULL GROUP BY cgroup, dev ORDER BY n DESC LIMIT 1
"""


@dataclass(frozen=True)
class Requests:
    """Requests of one kind to one disk: their number, and the time the disk took for them."""

    op: str
    n: int
    median_ns: int
    total_ns: int
    disk: int = 0


@dataclass(frozen=True)
class HeldBack:
    """The control group whose limit held back the most requests, with their number and disk.

    ``allowed`` is the limit per second in words; empty if unknown.
    """

    cgroup: str
    dev: int
    n: int
    allowed: str = ""


@dataclass(frozen=True)
class Evidence:
    """The facts that the rules use besides the causes, and two sums that they do not use.

    ``measurement_ns`` is how long calls waited for a CPU which the recorder had; ``strangers`` is
    the same for programs that made no call of the trace: {call: {cause: ns}}.
    """

    asker: Asker | None = None
    requests: tuple[Requests, ...] = ()
    cpu_holder: CpuHolder | None = None
    held_back: HeldBack | None = None
    disk_holders: tuple[DiskHolder, ...] = ()
    answerers: tuple[Answerer, ...] = ()
    measurement_ns: int = 0
    strangers: dict[str, dict[str, int]] = field(default_factory=dict)


def gather(
    con: duckdb.DuckDBPyConnection,
    trace: Trace,
    families: Families,
    times: Mapping[Key, int],
    forcing: Asker | None,
    window: Window = None,
) -> Evidence:
    """Read the evidence (needs the tables of ``split``, ``study_commits`` and ``time_callers``).

    Args:
        con: The connection.
        trace: The trace.
        families: Groups of each process.
        times: Time of the calls that are shown, by process.
        forcing: The group of processes that forces commits, if any.
        window: Only requests that overlap this time, ns since the epoch; None: all.
    """
    find_held_cpus(con)
    use = DiskUse()
    served: dict[tuple[int, str], list[np.ndarray]] = defaultdict(list)
    for turns in disk_turns(trace, window):
        use.add(turns)
        for key, ns in by_kind(turns):
            served[key].append(ns)
    return Evidence(
        asker=forcing,
        requests=tuple(_requests(served)),
        cpu_holder=worst_holder(con, families, times),
        held_back=_held_back(con, trace.meta),
        disk_holders=tuple(disk_holders(con, trace, families, times, use, window)),
        answerers=answerers(con),
        measurement_ns=measurement_ns(con),
        strangers=taken_by_strangers(con, families),
    )


def _requests(served: Mapping[tuple[int, str], list[np.ndarray]]) -> list[Requests]:
    """Return the requests by kind and disk, the longest time in sum first."""
    times = {key: np.concatenate(parts) for key, parts in served.items()}
    found = [
        Requests(kind, len(ns), round(float(np.median(ns))), int(ns.sum()), disk)
        for (disk, kind), ns in times.items()
        if len(ns)
    ]
    return sorted(found, key=lambda requests: -requests.total_ns)


def _held_back(con: duckdb.DuckDBPyConnection, meta: Mapping[str, Any]) -> HeldBack | None:
    row = con.execute(_HELD_BACK).fetchone()
    if row is None:
        return None
    cgroup, dev, n = row
    # The limits of a control group's ancestors hold for it, too.
    allowed = [
        text.format(limit[name])
        for limit in meta.get("io_limits", [])
        if limit["dev"] == dev and f"{cgroup}/".startswith(f"{limit['cgroup'].rstrip('/')}/")
        for name, text in _LIMITS.items()
        if name in limit
    ]
    return HeldBack(cgroup, dev, n, f" ({' and '.join(allowed)} a second)" if allowed else "")
