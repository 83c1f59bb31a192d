"""From causes to a culprit, a mechanism and a remedy to try: rules over an explanation."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import duckdb
import numpy as np

from spoolscope.analysis.answerers import ELSEWHERE, Answerer, answerers
from spoolscope.analysis.askers import Asker
from spoolscope.analysis.causes import ENDS_WITH_REQUEST, JOURNAL_WAITS
from spoolscope.analysis.cpu_holders import (
    CpuHolder,
    held_cpus,
    measurement_ns,
    taken_by_strangers,
    worst_holder,
)
from spoolscope.analysis.disk_holders import DiskHolder, disk_holders
from spoolscope.analysis.families import Families, Key
from spoolscope.analysis.services import Window, served
from spoolscope.analysis.wording import count, duration, percent
from spoolscope.traces.trace import Trace

if TYPE_CHECKING:
    from spoolscope.analysis.explain import Explanation

LEAST_SHARE = 0.1
"""Findings that explain less of the time in calls are not worth acting on."""
SLOW_REQUEST_NS = 10_000_000
"""A disk is slow if it takes this long for half of its writes, reads or flushes."""
LINEAR_ENTRIES = 1000
"""A directory with fewer names does not need an index."""

_LIMITS = {
    "read_iops": "{:,} reads",
    "write_iops": "{:,} writes",
    "read_bps": "{:,} bytes read",
    "write_bps": "{:,} bytes written",
}
"""What a limit on block I/O allows a second, by its name in meta.json."""

_HELD_BACK = """
SELECT cgroup, dev, count(*) AS n FROM block_ios
WHERE held_back AND cgroup IS NOT NULL GROUP BY cgroup, dev ORDER BY n DESC LIMIT 1
"""


@dataclass(frozen=True)
class Requests:
    """Requests of one kind to one disk: how many, and the time the disk took for them."""

    op: str
    n: int
    median_ns: int
    total_ns: int


@dataclass(frozen=True)
class HeldBack:
    """The control group whose limit held most requests back: how many, on which disk."""

    cgroup: str
    dev: int
    n: int


@dataclass(frozen=True)
class Evidence:
    """The facts that the rules look at besides the causes, and two sums that are not for them.

    ``measurement_ns`` is how long calls waited for a CPU which the recorder had, ``strangers`` how
    long for one that any other program had which made no call of the trace: {call: {cause: ns}}.
    """

    asker: Asker | None = None
    requests: tuple[Requests, ...] = ()
    cpu_holder: CpuHolder | None = None
    held_back: HeldBack | None = None
    disk_holders: tuple[DiskHolder, ...] = ()
    answerers: tuple[Answerer, ...] = ()
    measurement_ns: int = 0
    strangers: dict[str, dict[str, int]] = field(default_factory=dict)


OF_CALLS, OF_OTHERS = "the time in calls", "the time in calls of others"


@dataclass(frozen=True)
class Finding:
    """One thing that makes calls slow.

    Attributes:
        kind: forced_commits, full_journal, linear_directory, slow_disk, busy_disk, io_limit,
            busy_cpu, host_steal, or one of ``answerers.ELSEWHERE``.
        culprit: Who or what.
        mechanism: What it does to the calls.
        remedy: What to try.
        share: Part of the time that goes there, 0 to 1; findings may overlap.
        share_of: Of which time that is a part, in words.
    """

    kind: str
    culprit: str
    mechanism: str
    remedy: str
    share: float
    share_of: str = OF_CALLS

    @property
    def text(self) -> str:
        """The finding as two sentences."""
        share = f"{percent(self.share)} of {self.share_of}"
        return f"{self.culprit} {self.mechanism} ({share}). {self.remedy}"


def gather(
    con: duckdb.DuckDBPyConnection,
    trace: Trace,
    families: Families,
    times: Mapping[Key, int],
    forcing: Asker | None,
    window: Window = None,
) -> Evidence:
    """Read the evidence (needs the tables of ``split`` and ``study_commits``).

    Args:
        con: The connection.
        trace: The trace.
        families: Where processes belong.
        times: Time of the calls that are shown, by process.
        forcing: The one that forces commits.
        window: Only requests that overlap this time, ns since the epoch; None: all.
    """
    held_back = con.execute(_HELD_BACK).fetchone()
    held = held_cpus(con)
    return Evidence(
        asker=forcing,
        requests=tuple(_requests(trace, window)),
        cpu_holder=worst_holder(held, families, times),
        held_back=HeldBack(*held_back) if held_back else None,
        disk_holders=tuple(disk_holders(con, trace, families, times, window)),
        answerers=answerers(con),
        measurement_ns=measurement_ns(held),
        strangers=taken_by_strangers(held, families, {pid for pid, _ in times}),
    )


def _requests(trace: Trace, window: Window) -> list[Requests]:
    """Return those of each kind to each disk, the longest in sum first."""
    found = [
        Requests(kind, len(ns), round(float(np.median(ns))), int(ns.sum()))
        for (_, kind), ns in served(trace, window).items()
        if len(ns)
    ]
    return sorted(found, key=lambda requests: -requests.total_ns)


def diagnose(found: "Explanation") -> list[Finding]:
    """Return what makes the calls of a trace slow, the largest share first."""
    if not found.filesystem_ns:
        return []
    findings = [
        *_forced_commits(found),
        *_full_journal(found),
        *_linear_directories(found),
        *_slow_disk(found),
        *_busy_disk(found),
        *_io_limit(found),
        *_elsewhere(found),
        *_busy_cpu(found),
        *_host_steal(found),
    ]
    worth = [finding for finding in findings if finding.share >= LEAST_SHARE]
    return sorted(worth, key=lambda finding: -finding.share)


def _forced_commits(found: "Explanation") -> Iterator[Finding]:
    """Processes that make the journal commit far more often than any others."""
    asker = found.evidence.asker
    if asker is None:
        return
    seconds = found.shown_ns / 1e9
    rate = f", {asker.n / seconds:.0f} a second" if seconds else ""
    yield Finding(
        "forced_commits",
        asker.who,
        f"makes the journal commit with {asker.syscall or 'its calls'} on "
        f"{asker.path or 'its files'}: {count(asker.n)} of {count(asker.n_commits)} commits{rate}, "
        f"for which the others waited {duration(asker.others_ns)}",
        f"Let {asker.name} sync less often, or keep its files on another filesystem.",
        asker.share,
        OF_OTHERS,
    )


def _busy_disk(found: "Explanation") -> Iterator[Finding]:
    """Calls that waited for a disk while it served somebody else."""
    for held in found.evidence.disk_holders:
        yield Finding(
            "busy_disk",
            held.who,
            f"had the disk for {percent(held.ns / held.busy_ns, 0)} of the time that it was busy, "
            f"with {count(held.n)} requests: calls of others waited {duration(held.others_ns)} for "
            "it meanwhile",
            f"Run {held.name} when there is less mail, or give it less of the disk (ionice -c 3, "
            "or io.weight of its control group).",
            held.share,
            OF_OTHERS,
        )


def _full_journal(found: "Explanation") -> Iterator[Finding]:
    """Calls that must make room in the journal before they may begin."""
    waited = found.causes.get("log_space", 0)
    if not waited:
        return
    spools = found.meta.get("spools", [])
    in_journal = any("data=journal" in str(spool.get("options", "")) for spool in spools)
    xfs = any(spool.get("fstype") == "xfs" for spool in spools)
    larger = "Make the log larger (mkfs.xfs -l size=)" if xfs else (
        "Make the journal larger (tune2fs -O ^has_journal, then -J size=)"
    )  # fmt: skip
    yield Finding(
        "full_journal",
        "The journal",
        f"is full: calls waited {duration(waited)} for a checkpoint, that is until what it holds "
        "was written to its place",
        f"{larger}{', or mount with data=ordered' if in_journal else ''}.",
        waited / found.filesystem_ns,
    )


def _linear_directories(found: "Explanation") -> Iterator[Finding]:
    """Large directories without an index in which finding names takes long."""
    for cost in found.lookups:
        if cost.index != "none" or (cost.entries or 0) < LINEAR_ENTRIES:
            continue
        yield Finding(
            "linear_directory",
            f"The directory {cost.path or '/'}",
            f"has {count(cost.entries or 0)} names and no index: calls searched it name by name "
            f"for {duration(cost.cpu_ns)} on the CPU, and waited {duration(cost.dir_lock_ns)} for "
            f"its lock and {duration(cost.lookup_io_ns)} for its blocks",
            "Give it an index (tune2fs -O dir_index, then e2fsck -fD), or divide it.",
            cost.share,
        )


def _slow_disk(found: "Explanation") -> Iterator[Finding]:
    """A disk whose requests take long, and calls that wait for it or for its journal."""
    slow = [r for r in found.evidence.requests if r.median_ns >= SLOW_REQUEST_NS]
    if not slow:
        return
    waited = sum(found.causes.get(cause, 0) for cause in {*ENDS_WITH_REQUEST, *JOURNAL_WAITS})
    worst = slow[0]
    yield Finding(
        "slow_disk",
        "The disk",
        f"takes {duration(worst.median_ns)} for a {worst.op} (median of {count(worst.n)}), and "
        f"calls waited {duration(waited)} for it",
        "Look at the disk itself and at what else uses it; a disk or a journal device with a "
        "protected write cache would take the load.",
        waited / found.filesystem_ns,
    )


def _io_limit(found: "Explanation") -> Iterator[Finding]:
    """Calls that waited for requests which a limit of a control group held back."""
    held = found.evidence.held_back
    waited = found.causes.get("io_throttle", 0)
    if held is None or not waited:
        return
    # A group is held to the limits of those above it, too.
    allowed = [
        text.format(limit[name])
        for limit in found.meta.get("io_limits", [])
        if limit["dev"] == held.dev
        and f"{held.cgroup}/".startswith(f"{limit['cgroup'].rstrip('/')}/")
        for name, text in _LIMITS.items()
        if name in limit
    ]
    told = f" ({' and '.join(allowed)} a second)" if allowed else ""
    yield Finding(
        "io_limit",
        f"A limit of the control group {held.cgroup}",
        f"on its block I/O{told} held back {count(held.n)} requests: calls waited "
        f"{duration(waited)} for such",
        "Raise it (io.max or blkio.throttle; systemd: IOWriteIOPSMax and its like), or take out of "
        "the group what must not wait.",
        waited / found.filesystem_ns,
    )


def _elsewhere(found: "Explanation") -> Iterator[Finding]:
    """Calls that waited for a server, a thaw, a scanner, md or quota."""
    programs = {a.cause: a for a in found.evidence.answerers}
    for cause, about in ELSEWHERE.items():
        waited = found.causes.get(cause, 0)
        program = programs.get(cause)
        # One that ended less than half of it may have done so by chance.
        named = program is not None and 2 * program.ns >= waited
        yield Finding(
            about.kind,
            f"{program.comm} (process {program.pid})" if program and named else about.culprit,
            about.mechanism.format(waited=duration(waited)),
            about.remedy,
            waited / found.filesystem_ns,
        )


def _busy_cpu(found: "Explanation") -> Iterator[Finding]:
    """Calls that were ready to run while somebody else had their CPU."""
    held = found.evidence.cpu_holder
    if held is None:
        return
    of_call = held.syscall_ns / found.by_syscall[held.syscall].latency.total_ns
    yield Finding(
        "busy_cpu",
        held.who,
        f"had the CPU that calls of others waited for, {duration(held.ns)} in sum: "
        f"{percent(of_call)} of the time of {held.syscall} was waiting for a CPU that "
        f"{held.name} had",
        f"Give {held.name} less of the CPUs (nice, or cpu.weight of its control group), or the "
        "machine more of them.",
        held.share,
        OF_OTHERS,
    )


def _host_steal(found: "Explanation") -> Iterator[Finding]:
    """Calls that ran on a CPU that was not there: no program of this machine can tell why."""
    stolen = found.causes.get("steal", 0)
    yield Finding(
        "host_steal",
        "The host of this virtual machine",
        f"took the CPU away from running calls, for {duration(stolen)} in sum",
        "Its operator can give this machine CPUs of its own (no overcommitment, pinned vCPUs, a "
        "larger share); what else is measured here meanwhile is slower by that, too.",
        stolen / found.filesystem_ns,
    )
