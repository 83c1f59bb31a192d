"""The slowest calls, taken apart in time to the end of the chain."""

from spoolscope.analysis.causes import CAUSES
from spoolscope.analysis.study import Study
from spoolscope.analysis.waterfalls import LIMIT
from spoolscope.analysis.wording import count, duration, percent
from spoolscope.report.falls import Falls, falls_of, outcome
from spoolscope.report.figures.base import time_cell
from spoolscope.report.inputs import Inputs
from spoolscope.report.page import Section, Split, TableBlock

anchor = "slowest"


def applies(page: Inputs) -> bool:
    """Return True if a trace was studied."""
    return bool(page.studies)


def make(page: Inputs) -> Section:
    """Lay out the slowest calls: each as a waterfall, and all in a table."""
    blocks: list[Falls | TableBlock] = []
    for number, (name, study) in enumerate(page.studies.items()):
        if study.slowest:
            blocks.append(_falls(f"falls-{number}", name, study, LIMIT // len(page.studies)))
        blocks.append(_table(name, study))
    intro = "What each waited for, what had it, and what that one waited for: the whole chain."
    return Section(anchor, "Slowest", "Slowest calls", intro, blocks)


def _falls(key: str, name: str, study: Study, most: int) -> Falls:
    calls = study.slowest[:most]
    return Falls(
        key,
        f"Slowest calls, taken apart: {name}",
        _finding(study),
        f"The {len(calls)} longest of {count(study.explanation.n_calls)} calls, waits for other "
        "programs left out. The first track is the call and covers it exactly. Kept waiting: the "
        "process that had what it waited for at that time; meanwhile: what that one slept for "
        "itself, hop by hop. The commit: what the commit that it waited for was doing. Block "
        "requests: of the call, of its commits, and of those that kept it waiting; queued, then "
        "at the device. Where nothing is drawn nothing was recorded.",
        falls_of(calls),
    )


def _finding(study: Study) -> str:
    longest = study.slowest[0]
    cause = max(longest.causes, key=lambda key: longest.causes[key], default="cpu")
    share = percent(longest.causes.get(cause, 0) / max(longest.dur_ns, 1), 0)
    return (
        f"The slowest call, {outcome(longest.syscall, longest.errno)} of {longest.comm} "
        f"{longest.pid}, took {duration(longest.dur_ns)}: {share} of it {CAUSES[cause].label}."
    )


def _table(name: str, study: Study) -> TableBlock:
    return TableBlock(
        f"Slowest calls: {name}",
        [">at", "process", "call", "~path", ">took", "split"],
        [
            [time_cell(c.at_ns), f"{c.comm} {c.pid}", outcome(c.syscall, c.errno), c.path or "-",
             time_cell(c.dur_ns), Split.of(c.causes)]
            for c in study.slowest
        ],
        f"The {len(study.slowest)} longest of {count(study.explanation.n_calls)} calls, waits "
        "for other programs left out; the parts of each add up to its length exactly. At: since "
        "the recording began.",
        folded=bool(study.slowest),
    )  # fmt: skip
