"""Block requests: times in queue and device, sizes, order, kinds of writes, and stages."""

from spoolscope.analysis.block_io import (
    AWAITED,
    DATA,
    LABELS,
    LATER,
    PARTS,
    WRITES,
    BlockReport,
    Requests,
    Stages,
)
from spoolscope.analysis.wording import count, duration, percent, size
from spoolscope.report.figures import block_io as block_figures
from spoolscope.report.figures import latency as latency_figures
from spoolscope.report.inputs import Inputs
from spoolscope.report.latency_tables import curve_table
from spoolscope.report.page import Figure, Section, Table, TableBlock

anchor = "block-io"
DEVICES = 7
"""Most devices with a line in the figure."""


def applies(page: Inputs) -> bool:
    """Return True if a trace has block requests."""
    return bool(_reports(page))


def make(page: Inputs) -> Section:
    """Lay out the section."""
    reports = _reports(page)
    blocks: list[Figure | TableBlock] = [_written(reports)]
    if any(report.curves for report in reports.values()):
        blocks.append(_times(reports))
    blocks += [_requests(name, report) for name, report in reports.items() if report.requests]
    staged = [
        (_on(reports, name, f"{one.device} {one.what}"), one)
        for name, report in reports.items()
        for one in report.stages
    ]
    if staged:
        blocks += [_stages(staged), _stage_table(staged)]
    intro = (
        "What the filesystems made of the calls. A device that lies on another has each request "
        "twice, once on each: times of devices are not to be added up."
    )
    return Section(anchor, "Block I/O", "Block I/O", intro, blocks)


def _reports(page: Inputs) -> dict[str, BlockReport]:
    found = {name: study.block_io for name, study in page.studies.items()}
    return {name: one for name, one in found.items() if one.requests or one.stages}


def _written(reports: dict[str, BlockReport]) -> TableBlock:
    rows = []
    for name, report in reports.items():
        written = report.written_bytes
        whole = sum(written.values())
        for kind in WRITES:
            times = report.by_calls(written[kind])
            rows.append(
                [name, LABELS[kind].removeprefix("write "), size(written[kind]),
                 percent(written[kind] / whole if whole else None), _times_said(times)]
            )  # fmt: skip
        rows.append([name, "all", size(whole), percent(1.0) if whole else "-",
                     _times_said(report.amplification)])  # fmt: skip
    return TableBlock(
        "What was written",
        ["trace", "kind", ">bytes", ">share", ">by bytes of calls"],
        rows,
        f"{' '.join(_finding(name, report) for name, report in reports.items())} The kind follows "
        "from a request's flags. Metadata, awaited: the journal or log, and metadata blocks that a "
        "call or a commit wrote itself and waited for; flags do not tell these apart. Later: by "
        "writeback and checkpoints. Data that was in memory, not yet written, when the recording "
        "began is in the bytes, but not in those of calls; what was still in memory when it ended "
        "is not in the bytes. Bytes of calls are those of write, copy_file_range, sendfile and the "
        "like, and of io_uring; not what they changed through mappings, or in names and "
        "attributes.",
    )


def _finding(name: str, report: BlockReport) -> str:
    written = report.written_bytes
    whole = sum(written.values())
    if not whole:
        return f"{name}: nothing was written."
    said = (
        f"{name}: {percent(written[DATA] / whole, 0)} of {size(whole)} is data, "
        f"{percent(written[AWAITED] / whole, 0)} metadata that was waited for, "
        f"{percent(written[LATER] / whole, 0)} metadata written later"
    )
    if report.amplification is not None:
        said += f"; {report.amplification:.1f} bytes for each of {size(report.call_bytes)} that "
        said += "calls wrote"
    elif report.unlike and report.call_bytes:
        said += f"; not compared with what calls wrote, as {report.unlike}"
    return f"{said}."


def _times_said(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f} x"


def _times(reports: dict[str, BlockReport]) -> Figure:
    curves = {
        _on(reports, name, device): found
        for name, report in reports.items()
        for device, found in report.curves.items()
    }
    drawn = dict(list(curves.items())[:DEVICES])
    n = sum(one.n for report in reports.values() for one in report.requests)
    left = len(curves) - len(drawn)
    return Figure(
        key="block-times",
        title="Share of requests that took longer",
        finding=" ".join(_slowest(name, report) for name, report in reports.items()),
        caption=f"Queue and device time together, {count(n)} requests; both axes are logarithmic. "
        "Below and to the left is better. Kinds with fewer "
        "than 100 are left out. A request that asks for a flush waits for it in the queue."
        + (f" The other {left} devices are only in the tables." if left else ""),
        table=curve_table(curves),
        plot=latency_figures.tails(drawn),
    )


def _on(reports: dict[str, BlockReport], name: str, device: str) -> str:
    return f"{name}: {device}" if len(reports) > 1 else device


def _slowest(name: str, report: BlockReport) -> str:
    """Return the kind of request that took most time on the topmost devices."""
    if not report.top:
        return f"{name}: no request."
    most = max(report.top, key=lambda one: one.queue_ns + one.device_ns)
    whole = sum(one.queue_ns + one.device_ns for one in report.top)
    share = percent((most.queue_ns + most.device_ns) / whole if whole else None, 0)
    return (
        f"{name}: {share} of the time of all requests is {most.label} on {most.device}, "
        f"{duration(most.queue_ns / most.n)} in the queue and {duration(most.device_ns / most.n)} "
        "at the device on average."
    )


def _requests(name: str, report: BlockReport) -> TableBlock:
    found = report.requests
    odd = [
        f"{count(n)} {what}."
        for what, n in (
            ("failed", sum(one.errors for one in found)),
            ("were held back by a limit of a control group", sum(o.held_back for o in found)),
        )
        if n
    ]
    return TableBlock(
        f"Requests: {name}",
        ["device", "kind", ">n", ">bytes", ">mean", ">in sequence", ">sync", ">FUA", ">queue p50",
         ">queue p99", ">device p50", ">device p99", ">longest"],
        [_row(one) for one in found],
        " ".join([
            "Device: major:minor, as lsblk lists them; for: the device on it that the request was "
            "made for. Queue: from insertion until handed to the driver; device: from there until "
            "complete, without the cache flush that follows a request with FUA where the disk has "
            "no FUA: the cache flushes have that time. In sequence: begins where the one before, "
            "of the same direction, ended. A flush asked for has no data; the cache flush is the "
            "driver's own. What a device did in its time (its cache, its queue) cannot be seen, "
            "and merges and the time before insertion only with record --blktrace.",
            *odd,
        ]),
        folded=len(found) > 2 * len(LABELS),
    )  # fmt: skip


def _row(one: Requests) -> list[str]:
    data = one.bytes > 0
    return [
        one.device,
        one.label,
        count(one.n),
        size(one.bytes) if data else "-",
        size(one.bytes / one.n) if data else "-",
        percent(one.follows / one.n, 0) if data else "-",
        percent(one.sync / one.n, 0),
        percent(one.fua / one.n, 0),
        duration(one.queue_p50_ns),
        duration(one.queue_p99_ns),
        duration(one.device_p50_ns),
        duration(one.device_p99_ns),
        duration(one.max_ns),
    ]


def _stages(staged: list[tuple[str, Stages]]) -> Figure:
    most = max(staged, key=lambda item: item[1].total_ns)
    part = max(most[1].parts, key=lambda name: most[1].parts[name])
    share = percent(most[1].parts[part] / max(most[1].total_ns, 1), 0)
    finding = f"{most[0]}: {share} of the time from Q to C is {PARTS[part]}."
    n, unseen = (sum(getattr(one, key) for _, one in staged) for key in ("n", "unseen"))
    return Figure(
        key="block-stages",
        title="Mean time of a request, by stage",
        finding=finding,
        caption=f"From the block trace, {count(n)} requests with Q and C"
        + (f"; {count(unseen)} others, whose Q or C was not seen, are left out" if unseen else "")
        + ". The stages of each add up to its time exactly; one that was not seen takes none.",
        table=Table(
            ["on", ">n", *(f">{label.partition(':')[0]}" for label in PARTS.values()), ">Q to C"],
            [
                [name, count(one.n), *(duration(ns / one.n) for ns in one.parts.values()),
                 duration(one.total_ns / one.n)]
                for name, one in staged
            ],
        ),
        plot=block_figures.stages(staged),
    )  # fmt: skip


def _stage_table(staged: list[tuple[str, Stages]]) -> TableBlock:
    heads = [f">{label.partition(':')[0]} p50" for label in PARTS.values()]
    return TableBlock(
        "Stages of requests",
        ["on", ">n", ">merged", ">requeued", *heads, ">Q to C p50", ">Q to C p99", ">longest"],
        [
            [name, count(one.n), count(one.merged), count(one.requeued),
             *map(duration, one.part_p50_ns.values()),
             duration(one.p50_ns), duration(one.p99_ns), duration(one.max_ns)]
            for name, one in staged
        ],
        "Q: queued; G: a request was made for it; I: inserted into the scheduler's queue; D: "
        "issued to the driver; C: complete. Merged: bios and requests that became part of these. "
        "A dash stands for too few requests to say.",
    )  # fmt: skip
