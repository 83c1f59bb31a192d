"""The page of any trace is small, also with full bins, long names, and calls of many parts.

The memory for it does not grow with the names of a spool that no call used.
"""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import spoolscope.analysis.explain
from spoolscope.analysis.bins import MAX_BINS, PROCESSES, SLOWEST, Bins, Mark, Moment, ProcessBins
from spoolscope.analysis.causes import CAUSES
from spoolscope.analysis.spans import Span
from spoolscope.analysis.study import study
from spoolscope.analysis.waterfalls import LIMIT, Lane, Waterfall, _fewer
from spoolscope.cli.main import group
from spoolscope.report.build import trace_page
from spoolscope.report.inputs import Inputs
from spoolscope.report.render import render
from spoolscope.report.sections import laid_out
from spoolscope.traces.digests import write_meta

pytestmark = pytest.mark.slow

LIMIT_BYTES = 8_000_000
COURIER = Path(__file__).parents[3] / "traces/samples/courier"
MORE = 300_000
NS = 123_456_789_012
HALF = list(CAUSES)[::2]


def full_bins(n):
    """Return bins in each of which every process has half of all causes."""
    return Bins(
        bin_ns=10**9,
        n=n,
        levels=list(range(40)),
        counts=[[12_345] * n for _ in range(40)],
        processes={
            f"program-{k:05}": ProcessBins([123_456] * n, {cause: [NS] * n for cause in HALF})
            for k in range(PROCESSES + 1)
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


def test_names_that_no_call_used_take_no_memory(tmp_path, monkeypatch):
    """Report a sample, and the same with 300,000 more directories, within the same memory."""
    monkeypatch.setattr(spoolscope.analysis.explain, "LEAST_MB", 60)
    large = tmp_path / "large.trace"
    shutil.copytree(COURIER, large)
    paths, tree = (pq.read_table(large / f"{name}.parquet") for name in ("paths", "tree"))
    ids = range(paths.num_rows + 1, paths.num_rows + 1 + MORE)
    names = {
        "path_id": ids,
        "path": [f"mail/{n // 1000}/user{n}" for n in ids],
        "kind": pa.array(["spool"] * MORE).dictionary_encode(),
        "spool": pa.array([0] * MORE, pa.int16()),
    }
    one = tree.slice(0, 1).to_pylist()[0]
    seen = {n: pa.array([value] * MORE, tree.schema.field(n).type) for n, value in one.items()}
    seen |= {"path_id": ids, "ino": range(10**6, 10**6 + MORE), "mode": [0o40700] * MORE}
    for name, table, more in (("paths", paths, names), ("tree", tree, seen)):
        added = pa.table(more).cast(table.schema)
        pq.write_table(pa.concat_tables([table, added]), large / f"{name}.parquet")
    meta = json.loads((large / "meta.json").read_text())
    meta["counts"] |= {"paths": paths.num_rows + MORE, "tree": tree.num_rows + MORE}
    write_meta(large, meta)
    for trace in (COURIER, large):
        out = str(tmp_path / f"{trace.stem}.html")
        group(["report", str(trace), "-o", out, "-q"], standalone_mode=False)
