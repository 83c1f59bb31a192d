"""The sections of the report: one file each, in the order of the page."""

from dataclasses import replace

from spoolscope.report.inputs import Inputs, SectionMaker
from spoolscope.report.page import Section
from spoolscope.report.sections import (
    block_io,
    callers,
    calls,
    certificate,
    commits,
    compare,
    cpu,
    culprits,
    environment,
    fidelity,
    files,
    icicle,
    insights,
    life,
    quality,
    replay_latency,
    slowest,
    timeline,
    trace_latency,
)

SECTIONS: tuple[SectionMaker, ...] = (
    compare,
    insights,
    life,
    icicle,
    calls,
    trace_latency,
    replay_latency,
    callers,
    timeline,
    commits,
    block_io,
    cpu,
    culprits,
    files,
    slowest,
    fidelity,
    certificate,
    quality,
    environment,
)


_OF_ALL_ROUNDS = (compare, life, trace_latency, fidelity, certificate, environment)
OF_ONE_ROUND = tuple(section for section in SECTIONS if section not in _OF_ALL_ROUNDS)
"""Sections that show one run of each candidate, not all rounds."""


def laid_out(page: Inputs) -> list[Section]:
    """Return the sections that have something to show, in order."""
    return [_laid_out(section, page) for section in SECTIONS if section.applies(page)]


def _laid_out(maker: SectionMaker, page: Inputs) -> Section:
    section = maker.make(page)
    if maker not in OF_ONE_ROUND:
        return section
    return replace(section, intro=f"{section.intro} {page.of_one_round}".strip())
