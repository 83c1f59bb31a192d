"""The sections of the report: one file each, in the order of the page."""

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


def laid_out(page: Inputs) -> list[Section]:
    """Return the sections that have something to show, in order."""
    return [section.make(page) for section in SECTIONS if section.applies(page)]
