"""Injection of faults under a recorded load, and judgement of the explanation."""

import json
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb

from spoolscope.analysis.explain import Explanation, explain_with
from spoolscope.lab import load
from spoolscope.lab.accuracy import Score, Spans, common, joined, read_calls, score
from spoolscope.lab.faults import MIB, Delay, Fault, Role
from spoolscope.lab.fill import fill, warm
from spoolscope.lab.limits import limited
from spoolscope.lab.place import format_image, journal_places, mounted
from spoolscope.lab.private import memory_directory
from spoolscope.lab.slowdisk import END, Delayed, SlowDisk
from spoolscope.replay import images
from spoolscope.replay.interrupts import ending_on_signals
from spoolscope.tracers.request import Snapshot
from spoolscope.tracers.session import Request, record
from spoolscope.traces.errors import SpoolscopeError
from spoolscope.traces.filesystems import FILESYSTEMS
from spoolscope.traces.trace import Trace

Progress = Callable[[str, float | None], None]
INTERRUPTED = 128 + signal.SIGTERM
SMALL_BYTES, LARGE_BYTES = 256 * MIB, 512 * MIB


@dataclass(frozen=True)
class Deed:
    """An action that a process of the load logged, by its own clock, since the epoch."""

    role: str
    pid: int
    begin_ns: int
    end_ns: int


@dataclass(frozen=True)
class Outcome:
    """One fault on one filesystem, injected, recorded and judged."""

    fault: str
    fstype: str
    score: Score
    explanation: Explanation


def run_all(
    wanted: Sequence[tuple[Fault, str]], seconds: float, progress: Progress
) -> tuple[list[Outcome], list[str]]:
    """Inject faults one after the other, each in a fresh directory in memory.

    Returns:
        The outcomes, and a sentence on every fault that could not be injected.
    """
    outcomes, left_out = [], []
    with ending_on_signals():
        for n, (fault, fstype) in enumerate(wanted):
            progress(f"{fault.name} on {fstype}", n / len(wanted))
            try:
                with memory_directory() as place:
                    outcomes.append(run(fault, fstype, place, seconds))
            except (SpoolscopeError, OSError) as error:
                left_out.append(f"{fault.name} on {fstype}: {why(error)}")
    return outcomes, left_out


def why(error: SpoolscopeError | OSError) -> str:
    """Return the reason for which an experiment was left out, with its remedy if there is one."""
    remedy = f"; {error.remedy}" if isinstance(error, SpoolscopeError) else ""
    return f"{error}{remedy}"


def run(fault: Fault, fstype: str, place: Path, seconds: float) -> Outcome:
    """Inject one fault.

    Args:
        fault: The fault.
        fstype: The filesystem type.
        place: An empty directory.
        seconds: Duration of the load.

    Raises:
        SpoolscopeError: something that it needs is missing.
    """
    image, log = place / "image", place / "deeds.log"
    small = 4 * FILESYSTEMS[fstype].smallest_bytes <= SMALL_BYTES
    size = SMALL_BYTES if small else LARGE_BYTES
    format_image(image, fstype, size, fault.mkfs.get(fstype, ()))
    log.touch()
    options = fault.mount.get(fstype, "noatime")
    with SlowDisk(image, place) as disk:
        with mounted(disk.path, place / "mnt", fstype) as mount:
            fill(mount, fault.fill)
        with mounted(disk.path, place / "mnt", fstype, options) as mount:
            images.serve_at_once(mount)
            warm(mount, fault.fill)
            journal = journal_places(image) if fstype.startswith("ext") else []
            with delayed(disk, fault.delays, journal), limited(fault.limit, mount) as group:
                roles = [_within(role, group, fault) for role in fault.roles]
                plan = {"mount": str(mount), "seconds": seconds, "log": str(log), "roles": roles}
                trace = record_load(plan, mount, place / "trace")
        delays = disk.delayed()
    return judge(fault, fstype, trace, delays, _read_deeds(log))


def _read_deeds(log: Path) -> list[Deed]:
    lines = (line.split() for line in log.read_text().splitlines())
    return [Deed(role, *map(int, numbers)) for role, *numbers in lines]


def _within(role: Role, group: Path | None, fault: Fault) -> Role:
    return role if group is None or role["role"] in fault.culprits else role | {"group": str(group)}


def judge(
    fault: Fault, fstype: str, trace: Trace, delays: Sequence[Delayed], deeds: Sequence[Deed]
) -> Outcome:
    """Explain a recording and compare with the truth.

    Args:
        fault: The injected fault.
        fstype: The filesystem type.
        trace: The recording.
        delays: Requests that the disk delayed.
        deeds: Logged actions of the processes.
    """
    culprits = {deed.pid for deed in deeds if deed.role in fault.culprits}
    guilty = [deed for deed in deeds if deed.pid in culprits or not fault.culprits]
    done = joined((deed.begin_ns, deed.end_ns) for deed in guilty)
    with trace.connect() as con:
        if culprits:
            delays = _asked_by(con, delays, culprits)
        slow = joined((delay.begin_ns, delay.end_ns) for delay in delays)
        truth = slow if fault.delays else done
        if fault.delays and fault.culprits:
            truth = common(slow, done)
        if fault.until_asked:
            truth = _until_asked(guilty, delays)
        explanation = explain_with(con, trace, blame=True)
        calls = [call for call in read_calls(con) if call.pid not in culprits]
    least_ns = _delay_ns(fault) // 2
    found = score(calls, truth, fault.right, culprits, least_ns)
    return Outcome(fault.name, fstype, found, explanation)


def _delay_ns(fault: Fault) -> int:
    """Return how long a fault delays a call that meets it; 0 if unknown."""
    if fault.until_asked and fault.limit:
        return 1_000_000_000 // fault.limit[1]
    return min((delay.delay_ns for delay in fault.delays), default=0)


def _asked_by(
    con: duckdb.DuckDBPyConnection, delays: Sequence[Delayed], culprits: AbstractSet[int]
) -> list[Delayed]:
    """Leave out delays of requests that no culprit made."""
    asked = con.execute(
        "SELECT op, sector * 512, bytes, ts_ns, ts_ns + queue_ns + device_ns FROM block_ios "
        f"WHERE pid IN ({', '.join(map(str, culprits))})"
    ).fetchall()

    def is_theirs(delay: Delayed) -> bool:
        return any(
            op == delay.kind
            and start <= delay.offset < start + size
            # Disk and recorder read the same clock, but at different times.
            and 2 * (min(end, delay.end_ns) - max(begin, delay.begin_ns))
            > delay.end_ns - delay.begin_ns
            for op, start, size, begin, end in asked
        )

    return [delay for delay in delays if is_theirs(delay)]


def _until_asked(deeds: Sequence[Deed], asked: Sequence[Delayed]) -> Spans:
    """Return the time of actions until their last request, without the disk's service time."""
    spans = []
    in_order = sorted(asked, key=lambda request: request.begin_ns)
    for deed in deeds:
        until = deed.begin_ns
        for request in in_order:
            if deed.begin_ns <= request.begin_ns < deed.end_ns:
                spans.append((until, max(until, request.begin_ns)))
                until = max(until, request.end_ns)
    return joined(spans)


def record_load(
    plan: dict[str, Any],
    mount: Path,
    output: Path,
    *,
    snapshot: Snapshot = "none",
    program: Sequence[str] = (sys.executable, "-S", load.__file__),
) -> Trace:
    """Record a load on a mount, of ``lab.load`` or of another program that takes its plan.

    Raises:
        SpoolscopeError: the recorder or a process of the load failed.
        KeyboardInterrupt: a signal ended the recording.
    """
    command = [*program, json.dumps(plan)]
    summary = record(
        Request(spools=[mount], output=output, command=command, keep_names=True, snapshot=snapshot)
    )
    # The recorder received the signal and ended in order, perhaps before the load began.
    if summary.failure is None and summary.command_status in (None, INTERRUPTED):
        raise KeyboardInterrupt
    if summary.command_status:
        raise SpoolscopeError("a process of the load failed", remedy="see its message above")
    return Trace.open(summary.trace)


@contextmanager
def delayed(
    disk: SlowDisk, delays: Sequence[Delay], journal: Sequence[tuple[int, int]]
) -> Iterator[None]:
    """Keep delays in force during the block; ``journal`` has the journal's byte ranges."""
    with ExitStack() as after:
        after.callback(disk.clear)
        for delay in delays:
            if delay.where != "journal":
                disk.delay(delay.kind, delay.delay_ns, 0, END)
            if delay.where != "all":
                ns = delay.delay_ns if delay.where == "journal" else 0
                for start, end in journal:
                    disk.delay(delay.kind, ns, start, end)
        yield
