"""The page of a trace of disks alone."""

from spoolscope.analysis.disk_traces import NOT_IN_A_DISK_TRACE, DiskTrace, study_disks
from spoolscope.analysis.study import study
from spoolscope.analysis.wording import count, duration, size
from spoolscope.report.inputs import Inputs
from spoolscope.report.page import Fact, Page, Section, TableBlock
from spoolscope.report.sections import block_io
from spoolscope.traces.phases import Progress, unseen
from spoolscope.traces.trace import Trace


def disk_page(trace: Trace, footer: str, progress: Progress = unseen) -> Page:
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
        problems=[f"Not known: {NOT_IN_A_DISK_TRACE}", *_problems(found)],
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
        sections=[
            block_io.make(Inputs({name: study(trace, progress=progress)})),
            _submitters(found),
        ],
        footer=footer,
    )


def _problems(found: DiskTrace) -> list[str]:
    what = {
        "lost": "events are missing in the middle of the block trace",
        "foreign_bytes": "bytes of the files are no events",
        "not_understood": "lines were not understood",
    }
    return [
        f"{count(int(found.imported[k]))} {v}." for k, v in what.items() if found.imported.get(k)
    ]


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
