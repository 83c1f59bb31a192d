"""Facts that rules of insights use besides the causes, computed in Python."""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

import duckdb
import numpy as np

from spoolscope.analysis.answerers import Answerer, answerers
from spoolscope.analysis.askers import Asker
from spoolscope.analysis.causes import AT_DISK
from spoolscope.analysis.cpu_holders import (
    CpuHolder,
    find_held_cpus,
    measurement_ns,
    taken_by_strangers,
    worst_holder,
)
from spoolscope.analysis.disk_holders import DiskHolder, DiskUse, disk_holders
from spoolscope.analysis.families import Families, Key
from spoolscope.analysis.services import Turns, Window, by_kind, disk_turns
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
WHERE held_back AND cgroup IS NOT NULL AND in_slice(ts_ns, ts_ns + queue_ns + device_ns)
GROUP BY cgroup, dev ORDER BY n DESC LIMIT 1
"""

_LAST_AT_DISK = f"""
SELECT max(ts_ns + dur_ns) FROM named_waits WHERE shown AND placed AND cause IN {AT_DISK}
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
    span: Window = None,
) -> Evidence:
    """Read the evidence (needs the tables of ``split``, ``study_commits`` and ``time_callers``).

    Args:
        con: The connection.
        trace: The trace.
        families: Groups of each process.
        times: Time of the calls that are shown, by process.
        forcing: The group of processes that forces commits, if any.
        span: The part of the recording that is shown, ns since the epoch, in which requests are
            counted; None: all. What had the disk is looked for until shown calls no longer waited.
    """
    find_held_cpus(con)
    use, window = DiskUse(), _waited_at_disk(con, span)
    served: dict[tuple[int, str], list[np.ndarray]] = defaultdict(list)
    for turns in disk_turns(trace, window):
        use.add(turns)
        for key, ns in by_kind(turns if span is None else _within(turns, *span)):
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


def _waited_at_disk(con: duckdb.DuckDBPyConnection, span: Window) -> Window:
    """Return a span, prolonged until no shown call waits at a disk."""
    if span is None:
        return None
    ((last_ns,),) = con.execute(_LAST_AT_DISK).fetchall()
    return span[0], max(span[1], last_ns or 0)


def _within(turns: Turns, from_ns: int, to_ns: int) -> Turns:
    """Return the turns that overlap a time, cut at its begin and end."""
    chosen = (turns.from_ns < to_ns) & (turns.to_ns > from_ns)
    left = {
        one.name: getattr(turns, one.name)[chosen] for one in fields(turns) if one.name != "names"
    }
    left["from_ns"] = np.maximum(left["from_ns"], from_ns)
    left["to_ns"] = np.minimum(left["to_ns"], to_ns)
    return Turns(**left, names=turns.names)


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
