"""The text of info and explain for a trace of disks alone."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from spoolscope.cli.output import wrapped

if TYPE_CHECKING:
    from spoolscope.analysis.disk_traces import DiskTrace, Times


def disk_lines(found: "DiskTrace") -> Iterable[str]:
    """Yield the facts on the disks, and what is unknown, at most 80 columns."""
    from spoolscope.analysis.disk_traces import NOT_IN_A_DISK_TRACE
    from spoolscope.analysis.wording import count, duration, fitting, size

    yield from wrapped(found.headline)
    for finding in found.findings:
        yield from wrapped(f"* {finding}")
    yield ""
    yield f"{'disk':<9}{'op':<9}{'n':>9}{'bytes':>10}{'size':>10}{'in order':>10}"
    for kind in found.kinds:
        yield (
            f"{kind.disk:<9}{kind.op:<9}{count(kind.n):>9}{size(kind.bytes):>10}"
            f"{size(kind.median_bytes):>10}"
            + (f"{100 * kind.sequential:>8.0f} %" if kind.bytes and kind.enough else f"{'-':>10}")
        )
    for what in ("queue", "device"):
        yield ""
        yield f"{_HEADS[what]:<26}{'mean':>10}{'median':>10}{'p99':>10}{'max':>10}"
        for kind in found.kinds:
            yield f"{f'{kind.disk} {kind.op}':<26}{_times(getattr(kind, what))}"
    yield ""
    yield f"{'submitted by':<18}{'n':>9}{'written':>11}{'read':>11}{'flush':>8}{'at disk':>11}"
    for one in found.submitters:
        yield (
            f"{fitting(one.comm or '(not known)', 17):<18}{count(one.n):>9}"
            f"{size(one.written_bytes):>11}{size(one.read_bytes):>11}{count(one.flushing):>8}"
            f"{duration(one.device_ns):>11}"
        )
    yield ""
    yield from wrapped(f"Not known: {NOT_IN_A_DISK_TRACE}")


_HEADS = {"queue": "until issued", "device": "at the disk"}


def _times(times: "Times") -> str:
    from spoolscope.analysis.wording import duration

    shown = (times.mean, times.median, times.p99, times.max)
    return "".join(f"{duration(value):>10}" for value in shown)


_OPEN = {
    "lost": "events lost",
    "foreign_bytes": "bytes not understood",
    "not_understood": "lines not understood",
    "other_lines": "lines of something else",
}


def imported_disks(facts: dict[str, Any]) -> str:
    """Return the source of an imported block trace, and what the import left open."""
    said = f"{facts['events']:,} events of {facts['from']}"
    said += ", times from the change of the file" if facts.get("times") == "relative" else ""
    left = [f"{facts[name]:,} {what}" for name, what in _OPEN.items() if facts.get(name)]
    return ", ".join([said, *left])
