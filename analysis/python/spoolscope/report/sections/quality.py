"""The section on the quality of the recording: recorded, lost and unexplained parts."""

from spoolscope.analysis.wording import count, duration, percent
from spoolscope.report.inputs import Inputs, Studies
from spoolscope.report.page import Section, TableBlock

anchor = "quality"


def applies(page: Inputs) -> bool:
    """Return True if a trace was studied."""
    return bool(page.studies)


def make(page: Inputs) -> Section:
    """Lay out recorded, lost and unexplained parts."""
    studies = page.studies
    rows = []
    for name, study in studies.items():
        found, meta = study.explanation, study.explanation.meta
        rows.append(
            [name, count(found.n_calls), "yes" if meta.get("complete") else "NO",
             count(int(meta.get("lost", 0))), str(meta.get("tier", "?")),
             f"{found.split.sum_error_ns} ns", percent(found.named_share, 2),
             duration(found.split.without_segment_ns),
             count(int(meta.get("paths_unresolved", 0)))]
        )  # fmt: skip
    blocks = [
        TableBlock(
            "Recording quality",
            ["trace", ">calls", "complete", ">lost", "tier", ">sum error", ">blocked named",
             ">without segment", ">paths unresolved"],
            rows,
            "Sum error: largest difference between a call's length and the sum of its causes. "
            "Tier: T0 totals only, T1 causes from kernel stacks, T2 with journal and block "
            "events. " + " ".join(f"{n}: {r}" for n, s in studies.items()
                                  for r in s.explanation.remarks),
        ),
        _unknown(studies),
    ]  # fmt: skip
    return Section(
        anchor, "Recording", "Recording quality", "What the numbers above rest on.", blocks
    )


def _unknown(studies: Studies) -> TableBlock:
    rows = [
        [name, " < ".join(stack.frames[:6]) or "(no stack)", ", ".join(stack.syscalls[:3]),
         count(stack.n), duration(stack.ns), percent(stack.share, 2)]
        for name, study in studies.items()
        for stack in study.explanation.unknown[:10]
    ]  # fmt: skip
    return TableBlock(
        "Unexplained stacks",
        ["trace", "~stack, innermost first", "calls", ">waits", ">time", ">of blocked"],
        rows,
        "Waits that no rule knows. 'spoolscope explain TRACE --unknown' prints a rule to start "
        "from; --rules FILE applies it."
        if rows
        else "None: every stack has a rule.",
        folded=bool(rows),
    )
