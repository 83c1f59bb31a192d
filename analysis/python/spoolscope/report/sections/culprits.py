"""Culprits and their victims."""

from spoolscope.analysis.causes import CAUSES
from spoolscope.analysis.study import Study
from spoolscope.report.figures.base import count_cell, time_cell
from spoolscope.report.inputs import Inputs
from spoolscope.report.page import Section, TableBlock

anchor = "culprits"
SHOWN = 15


def applies(page: Inputs) -> bool:
    """Return True if a call of a studied trace waited for something that has a culprit."""
    return any(study.explanation.culprits for study in page.studies.values())


def make(page: Inputs) -> Section:
    """Culprits and their victims."""
    studies = page.studies
    blocks = [
        _culprits(name, study) for name, study in studies.items() if study.explanation.culprits
    ]
    intro = "A victim is a call that slept or was ready to run; its culprit had what it waited for."
    return Section(anchor, "Culprits", "Culprits and their victims", intro, blocks)


def _culprits(name: str, study: Study) -> TableBlock:
    rows = [
        [f"{c.victim} ({c.victim_call})", CAUSES[c.cause].label, c.mechanism.replace("_", " "),
         f"{c.culprit} {c.culprit_pid or ''} ({c.culprit_call})".replace(" (-)", ""),
         count_cell(c.n), time_cell(c.ns), time_cell(c.max_ns),
         "recorded" if c.recorded else "inferred"]
        for c in study.explanation.culprits[:SHOWN]
    ]  # fmt: skip
    return TableBlock(
        f"Victims and culprits: {name}",
        ["victim", "waited for", "how", "culprit", ">waits", ">time", ">longest", "evidence"],
        rows,
        "Each instant of a wait has one culprit at most: the process that held the lock, whose "
        "open handle or unwritten data a commit waited for, that asked for the commit, whose "
        "request was the oldest at the disk, that woke the victim, or that had its CPU. "
        "Recorded: the kernel named "
        "it. Inferred: it follows from the order of requests, writes and waits. Waits for oneself "
        "are left out. "
        "'spoolscope explain TRACE --edges FILE' writes every one of them, and what each "
        "culprit waited for meanwhile.",
    )
