"""The page of a trace of disks alone."""

from spoolscope.analysis.disk_traces import UNTOLD, DiskTrace, Kind, Times, study_disks
from spoolscope.analysis.wording import count, duration, percent, size
from spoolscope.report.page import Fact, Page, Section, TableBlock
from spoolscope.traces.trace import Trace


def disk_page(trace: Trace, footer: str) -> Page:
    """Lay out the report of a trace that has requests and no call."""
    found, meta = study_disks(trace), trace.meta
    name = trace.path.name
    whole = bool(meta.get("complete"))
    by = found.imported.get("from", "?")
    said = f"In {duration(found.duration_ns)}, {count(found.n)} requests from issue to completion"
    return Page(
        title=f"spoolscope: {name}",
        eyebrow=f"{name} · block requests, imported from {by}",
        badge="disks alone" if whole else "partial",
        headline=found.headline,
        sure=f"{said}. Times are those of the block layer, between its own events.",
        reasons=found.findings,
        problems=[f"Not known: {UNTOLD}", *_problems(found)],
        next_command=None,
        facts_title="Block trace",
        facts=[
            Fact("complete", "yes" if whole else "no", whole),
            Fact("events lost", count(int(meta.get("lost", 0))), not meta.get("lost")),
            Fact("events", count(int(found.imported.get("events", 0)))),
            Fact("requests", count(found.n)),
            Fact("not complete", count(found.unfinished)),
        ],
        hero=None,
        sections=[_requests(found), _times(found), _submitters(found)],
        footer=footer,
    )


def _problems(found: DiskTrace) -> list[str]:
    what = {
        "lost": "events are missing in the middle of the block trace",
        "foreign_bytes": "bytes of the files are no events",
        "not_understood": "lines were not understood",
    }
    return [f"{count(int(found.imported[k]))} {v}." for k, v in what.items()
            if found.imported.get(k)]  # fmt: skip


def _requests(found: DiskTrace) -> Section:
    rows = [
        [k.disk, k.op, count(k.n), size(k.bytes), size(k.median_bytes), size(k.max_bytes),
         _in_order(k), count(k.preflush), count(k.fua), count(k.errors)]
        for k in found.kinds
    ]  # fmt: skip
    heads = ["disk", "op", ">n", ">bytes", ">median size", ">largest", ">in order", ">flush before",
             ">FUA", ">failed"]  # fmt: skip
    caption = "In order: the share of requests that begin where the one before of its kind ended."
    table = TableBlock("Requests", heads, rows, f"{count(found.n)} requests. {caption}")
    return Section("requests", "Requests", "What the disks were asked for", "", [table])


def _in_order(kind: Kind) -> str:
    return percent(kind.sequential, 0) if kind.bytes else "-"


def _times(found: DiskTrace) -> Section:
    heads = ["disk", "op", ">n", ">mean", ">median", ">p99", ">longest"]
    queue = [[*_kind(k), *_row(k.queue)] for k in found.kinds]
    device = [[*_kind(k), *_row(k.device)] for k in found.kinds]
    few = "A 99th percentile needs 1,000 requests."
    return Section(
        "times",
        "Times",
        "How long requests took",
        "Until they were issued to the driver, and from there until they were complete.",
        [
            TableBlock("Until issued", heads, queue, f"From insertion, or allocation. {few}"),
            TableBlock("At the disk", heads, device, f"From issue to completion. {few}"),
        ],
    )


def _kind(kind: Kind) -> list[str]:
    return [kind.disk, kind.op, count(kind.n)]


def _row(times: Times) -> list[str]:
    return [duration(times.mean), duration(times.median), duration(times.p99), duration(times.max)]


def _submitters(found: DiskTrace) -> Section:
    rows = [
        [one.comm or "(not known)", count(one.n), size(one.written_bytes), size(one.read_bytes),
         count(one.flushing), duration(one.device_ns)]
        for one in found.submitters
    ]  # fmt: skip
    heads = ["thread", ">n", ">written", ">read", ">flush or FUA", ">at the disk"]
    caption = "By the thread that queued them: of buffered writes that is the kernel's writeback."
    table = TableBlock("Submitters", heads, rows, caption)
    return Section("submitters", "Submitters", "Which threads submitted them", "", [table])
