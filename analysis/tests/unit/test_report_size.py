"""The page of any trace is small, also with full bins, long names, and calls of many parts."""

from dataclasses import replace

import pytest

from spoolscope.analysis.bins import MAX_BINS, PROGRAMS, SLOWEST, Bins, Mark, Moment, Program
from spoolscope.analysis.causes import CAUSES
from spoolscope.analysis.spans import Span
from spoolscope.analysis.study import study
from spoolscope.analysis.waterfalls import LIMIT, Lane, Waterfall, _fewer
from spoolscope.report.build import trace_page
from spoolscope.report.inputs import Inputs
from spoolscope.report.render import render
from spoolscope.report.sections import laid_out

LIMIT_BYTES = 8_000_000
NS = 123_456_789_012
HALF = list(CAUSES)[::2]


def full_bins(n):
    """Return bins in each of which every program has half of all causes."""
    return Bins(
        bin_ns=10**9,
        n=n,
        levels=list(range(40)),
        counts=[[12_345] * n for _ in range(40)],
        programs={
            f"program-{k:05}": Program([123_456] * n, {cause: [NS] * n for cause in HALF})
            for k in range(PROGRAMS + 1)
        },
        slowest=[
            [Moment(NS, f"p{k}", 4_000_000, "fdatasync", f"{at}/{k}/" + "x" * 4000, NS, "flush", NS)
             for k in range(SLOWEST)]
            for at in range(n)
        ],
        marks={mark: Mark([999] * n, [10**8 + k for k in range(n)], [NS] * n)
               for mark in ("commit", "flush", "frozen")},
    )  # fmt: skip


def full_waterfall(k):
    """Return a slow call of 12 lanes with a thousand spans each, as they leave the analysis."""
    spans = [Span(1000 * n, 1000 * n + 990, {HALF[n % 5]: 990}, "waited for a journal commit " * 3)
             for n in range(1000)]  # fmt: skip
    kinds = ("own", "holder", *["meanwhile"] * 3, "commit", *["request"] * 6)
    lanes = _fewer([Lane(kind, spans) for kind in kinds])
    return Waterfall(k, "imap", k, "fsync", "y" * 4000, 0, 10**6, {"flush": 10**6}, lanes)


@pytest.mark.parametrize(("traces", "bins"), [(1, MAX_BINS), (4, MAX_BINS // 4)])
def test_a_page_of_any_trace_is_small_enough_to_send(builder, traces, bins):
    builder.call("fsync", 0, 1000, path="u/1")
    path = builder.write()
    page = trace_page(path)
    full = replace(study(path), bins=full_bins(bins),
                   slowest=[full_waterfall(k) for k in range(LIMIT)])  # fmt: skip
    page = replace(page, sections=laid_out(Inputs({f"fs{k}": full for k in range(traces)})))
    assert len(render(page).encode()) <= LIMIT_BYTES
