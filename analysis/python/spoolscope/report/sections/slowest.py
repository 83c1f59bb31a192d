"""The slowest calls with their whole split."""

from spoolscope.analysis.wording import count, duration
from spoolscope.report.inputs import Inputs
from spoolscope.report.page import Section, Split, TableBlock

anchor = "slowest"


def applies(page: Inputs) -> bool:
    """Whether a trace was studied."""
    return bool(page.studies)


def make(page: Inputs) -> Section:
    """The slowest calls with their whole split."""
    studies = page.studies
    blocks = [
        TableBlock(
            f"Slowest calls: {name}",
            [">at", "process", "call", "~path", ">took", "split"],
            [
                [f"{c.at_ns / 1e9:.3f} s", f"{c.comm} {c.pid}", _outcome(c.syscall, c.errno),
                 c.path or "-", duration(c.dur_ns), Split.of(c.causes)]
                for c in study.slowest
            ],
            f"The {len(study.slowest)} longest of {count(study.explanation.n_calls)} calls, waits "
            "for other programs left out; the parts of each add up to its length exactly.",
            folded=number > 0,
        )
        for number, (name, study) in enumerate(studies.items())
    ]  # fmt: skip
    return Section(
        anchor, "Slowest", "Slowest calls", "One line each, with the whole split.", blocks
    )


def _outcome(syscall: str, errno: int) -> str:
    return f"{syscall} (errno {errno})" if errno else syscall
