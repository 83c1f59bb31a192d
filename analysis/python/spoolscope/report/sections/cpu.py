"""The section on CPU time of calls, by samples."""

from spoolscope.analysis.cpu import CPU_CLASSES, CpuReport
from spoolscope.analysis.wording import count, duration
from spoolscope.report.inputs import Inputs
from spoolscope.report.page import Section, TableBlock

anchor = "cpu"


def applies(page: Inputs) -> bool:
    """Return True if a trace has samples."""
    return bool(_sampled(page))


def make(page: Inputs) -> Section:
    """Lay out the CPU time of calls by class."""
    sampled = _sampled(page)
    rows = [row for name, cpu in sampled.items() for row in _rows(name, cpu)]
    intro = " ".join(f"{name}: {_agreement(cpu)}" for name, cpu in sampled.items())
    block = TableBlock(
        "Time on the CPU by class",
        ["trace", "doing", ">time", ">share", ">95 % interval", ">samples", "~meaning"],
        rows,
        "The total is exact, from switches; samples divide it, and the interval is that of the "
        "share. Tracing is what this recording itself takes in the calls.",
    )
    return Section(anchor, "CPU", "On the CPU", intro, [block])


def _sampled(page: Inputs) -> dict[str, CpuReport]:
    reports = {name: study.explanation.cpu for name, study in page.studies.items()}
    return {name: cpu for name, cpu in reports.items() if cpu and cpu.samples}


def _rows(name: str, cpu: CpuReport) -> list[list[str]]:
    return [
        [
            name,
            CPU_CLASSES[part.name].label,
            duration(part.ns),
            f"{100 * part.share:.1f} %",
            f"{100 * part.low:.1f} to {100 * part.high:.1f} %",
            count(part.samples),
            CPU_CLASSES[part.name].meaning,
        ]
        for part in cpu.classes
    ]


def _agreement(cpu: CpuReport) -> str:
    exact, sampled = duration(cpu.exact_ns), duration(cpu.sampled_ns)
    said = "agree" if cpu.agrees else "do not agree: other tracing or a busy host disturbed them"
    return f"{exact} by switches, {sampled} by {count(cpu.samples)} samples, which {said}."
