"""All that a report shows about one trace, computed on one connection."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import duckdb
import pyarrow as pa

from spoolscope.analysis.bins import MAX_BINS, Bins, in_bins
from spoolscope.analysis.block_io import BlockReport, study_block_io
from spoolscope.analysis.causes import BETWEEN_PROGRAMS
from spoolscope.analysis.explain import Explanation, explain_with
from spoolscope.analysis.hotspots import (
    Directory,
    PathClassTime,
    hot_directories,
    path_classes,
    prepare,
)
from spoolscope.analysis.latency import Curve, curves
from spoolscope.analysis.time_tree import Node, time_tree
from spoolscope.analysis.timeline import Timeline, timeline
from spoolscope.analysis.waterfalls import Waterfall, waterfalls
from spoolscope.analysis.why import by_family, doing, family_label
from spoolscope.analysis.wording import count, duration, percent
from spoolscope.traces.phases import Progress, unseen
from spoolscope.traces.trace import Trace

FIRST_INSIGHTS = 2
"""Insights on the first screen."""


@dataclass(frozen=True)
class Study:
    """The analyses of one trace; see the modules of the fields."""

    name: str
    explanation: Explanation
    timeline: Timeline
    curves: list[Curve]
    path_classes: list[PathClassTime]
    directories: list[Directory]
    slowest: list[Waterfall]
    bins: Bins
    tree: list[Node]
    block_io: BlockReport = field(default_factory=BlockReport)

    @property
    def headline(self) -> str:
        """The largest part of the time, in one sentence."""
        found = self.explanation
        if not self.largest:
            return "No time was spent in calls."
        (family, cause), ns = self.largest[0]
        share = percent(ns / found.filesystem_ns, 0)
        if not found.causes_recorded:
            return f"{share} of the time is in {family_label(family)}; causes were not recorded."
        return f"{share} of the time is {family_label(family)} {self._doing(cause)}."

    @property
    def largest(self) -> list[tuple[tuple[str, str], float]]:
        """The largest parts by (family of calls, cause), without waits for programs."""
        table = by_family({n: c.causes for n, c in self.explanation.by_syscall.items()})
        charged = [item for item in table.items() if item[0][1] not in BETWEEN_PROGRAMS]
        return sorted(charged, key=lambda item: -item[1])

    @property
    def findings(self) -> list[str]:
        """Sentences on why calls are slow and what to try, largest parts, and commit triggers.

        Of the insights the first ``FIRST_INSIGHTS``; the page lists all of them below.
        """
        total = self.explanation.filesystem_ns or 1
        insights = self.explanation.insights
        said = [insight.text for insight in insights[:FIRST_INSIGHTS]]
        said += [
            f"{duration(ns)} ({percent(ns / total)}): "
            f"{f'{family_label(family)} {self._doing(cause)}'.strip()}."
            for (family, cause), ns in self.largest[:3]
        ]
        blame = self.explanation.commits.blame
        has_insight = any(insight.kind == "forced_commits" for insight in insights)
        if blame and blame[0].others_ns and not has_insight:
            top = blame[0]
            said.append(
                f"{top.comm} ({top.syscall} on {top.path_class}) triggered {count(top.n)} commits; "
                f"others waited {duration(top.others_ns)} for them."
            )
        return said

    def _doing(self, cause: str) -> str:
        if not self.explanation.causes_recorded:
            return ""
        spools = self.explanation.meta.get("spools") or [{}]
        return doing(cause, str(spools[0].get("fstype", "")))


def study(
    trace: Trace | Path,
    name: str | None = None,
    comms: Mapping[int, str] | None = None,
    progress: Progress = unseen,
    bins: int = MAX_BINS,
) -> Study:
    """Study a trace.

    Args:
        trace: An opened trace, or its directory.
        name: Name to show, by default that of the directory.
        comms: Names to use instead of the recorded ones, by thread id: in the trace of a replay
            every process is the replayer, and these are the names of the replayed processes.
        progress: Called with the phase and the share of all that is done.
        bins: Largest number of bins of time.

    Raises:
        SpoolscopeError: it is not a trace, or is damaged.
    """
    trace = trace if isinstance(trace, Trace) else Trace.open(trace)
    with trace.connect() as con:
        if comms:
            _rename(con, comms)
        explanation = explain_with(con, trace, blame=True, progress=progress)
        prepare(con)
        return Study(
            name=name or trace.path.name,
            explanation=explanation,
            timeline=timeline(con, trace.meta),
            curves=curves(con),
            path_classes=path_classes(con),
            directories=hot_directories(con, trace.meta.get("spools") or []),
            slowest=waterfalls(con, trace.meta),
            bins=in_bins(con, trace.meta, bins),
            tree=time_tree(con),
            block_io=study_block_io(con, trace.meta),
        )


def _rename(con: duckdb.DuckDBPyConnection, comms: Mapping[int, str]) -> None:
    """Put other process names into the views of the calls and of the threads."""
    columns = {"tid": pa.array(list(comms), pa.int32()), "stood_for": list(comms.values())}
    con.register("comms_arrow", pa.table(columns))
    con.execute("CREATE TEMP TABLE comms AS SELECT * FROM comms_arrow")
    for table in ("syscalls", "threads"):
        con.execute(f"ALTER VIEW {table} RENAME TO recorded_{table}")
        con.execute(
            f"CREATE VIEW {table} AS SELECT t.* REPLACE (coalesce(c.stood_for, t.comm) AS comm) "
            f"FROM recorded_{table} t LEFT JOIN comms c USING (tid)"
        )
