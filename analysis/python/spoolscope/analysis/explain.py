"""Explain a trace: the time of its calls by cause, and how certain that is."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import duckdb

from spoolscope.analysis.askers import Askers, study_askers
from spoolscope.analysis.callers import Callers, study_callers
from spoolscope.analysis.causes import BETWEEN_PROGRAMS, CAUSES, MACHINE
from spoolscope.analysis.commits import CommitReport, study_commits
from spoolscope.analysis.cpu import CpuReport, study_cpu
from spoolscope.analysis.culprits import (
    Culprit,
    Link,
    Origin,
    culprits,
    longest_chains,
    origins,
    write_edges,
)
from spoolscope.analysis.evidence import Evidence, gather
from spoolscope.analysis.families import Families
from spoolscope.analysis.frozen import FrozenBy, frozen_by
from spoolscope.analysis.insights import Insight, find_insights
from spoolscope.analysis.latency import Latency, latencies
from spoolscope.analysis.lookups import LookupCost, study_lookups
from spoolscope.analysis.remarks import remarks
from spoolscope.analysis.selection import WHOLE, Selection, select
from spoolscope.analysis.split import Split, check_split
from spoolscope.analysis.stack_rules import Rule
from spoolscope.analysis.stacks import UnknownStack, unknown_stacks
from spoolscope.analysis.stages import begin
from spoolscope.analysis.user_code import UserCode, study_user_code
from spoolscope.traces.errors import SpoolscopeError
from spoolscope.traces.phases import Phases, Progress, unseen
from spoolscope.traces.scratch import scratch
from spoolscope.traces.trace import Trace

LEAST_MB, MOST_MB, CALLS_A_MB = 500, 1500, 100_000
"""Memory limits of DuckDB, with which explain and report need 1 GB for 10 million calls and 2 GB
for 100 million; the rest is Python, and memory that DuckDB does not count."""

ONE_THREAD = 200_000
"""Below this number of calls, waking more threads costs more than they save."""

TOO_LONG = "What kept the calls waiting needs more memory than is allowed for a trace this long."

SPLITTING, ADDING, CAUSING, BLAMING = (
    "splitting the time of calls",
    "adding up causes and latencies",
    "looking at commits and callers",
    "finding out what kept calls waiting",
)
PHASES = {SPLITTING: 2, ADDING: 1, CAUSING: 7, BLAMING: 7}
"""Phases of an explanation, with their relative durations."""

# Machine time comes from the calls, blocked time from the labelled waits.
_BY_SYSCALL = f"""
SELECT syscall, cause, CAST(sum(ns) AS BIGINT) AS ns FROM (
    SELECT syscall, cause, dur_ns AS ns FROM named_waits WHERE shown
    UNION ALL
    SELECT syscall, unnest({list(MACHINE)}) AS cause, unnest([{", ".join(MACHINE.values())}]) AS ns
    FROM call_totals
) GROUP BY ALL HAVING sum(ns) > 0
"""


@dataclass(frozen=True)
class CallTime:
    """The time of one kind of call: its latencies and causes {cause: ns}."""

    latency: Latency
    causes: dict[str, int]


@dataclass(frozen=True)
class Explanation:
    """The answer of ``explain``.

    Attributes:
        trace: Directory of the trace.
        meta: Its meta.json.
        n_calls: Number of calls.
        latency_ns: Time in all calls.
        split: Errors of the sums of parts.
        blocked_named_ns: Blocked time with a named cause.
        causes: Time by cause, in the order of the closed list; sums to ``latency_ns``.
        by_syscall: By call, the largest total first.
        commits: Journal commits, their phases, and what caused them.
        unknown: Waits that no rule knows, clustered by stack.
        cpu: CPU time of calls by class; None for a trace without samples.
        lookups: Directories in which finding names took longest.
        culprits: Victims and culprits in sums, the largest first; empty unless asked for.
        chains: The longest such waits, each with the chain of further culprits.
        origins: Waits for others by the cause at the end of their chains; empty likewise.
        evidence: Facts that rules of insights use besides the tables.
        insights: Reasons why the calls are slow, the longest time at stake first.
        selection: The calls that are shown; all sums are of those.
        callers: Time of the shown calls by their callers, and by mailbox.
        askers: The processes that asked for commits.
        frozen: Reason why the flight recorder was frozen at the end of this trace, if known.
        user_code: Program code that made the calls; None if that was not recorded.
        remarks: Sentences on what makes this answer partial; empty if it is whole.
    """

    trace: Path
    meta: dict[str, Any]
    n_calls: int
    latency_ns: int
    split: Split
    blocked_named_ns: int
    causes: dict[str, int]
    by_syscall: dict[str, CallTime]
    commits: CommitReport
    unknown: list[UnknownStack]
    cpu: CpuReport | None = None
    lookups: list[LookupCost] = field(default_factory=list)
    culprits: list[Culprit] = field(default_factory=list)
    chains: list[list[Link]] = field(default_factory=list)
    origins: list[Origin] = field(default_factory=list)
    evidence: Evidence = field(default_factory=Evidence)
    insights: list[Insight] = field(default_factory=list)
    selection: Selection = WHOLE
    callers: Callers = field(default_factory=Callers)
    askers: Askers = field(default_factory=Askers)
    frozen: FrozenBy | None = None
    user_code: UserCode | None = None
    remarks: list[str] = field(default_factory=list)

    @property
    def shown_ns(self) -> int:
        """Length of the part of the recording that is shown."""
        return self.selection.lasted_ns(int(self.meta.get("duration_ns", 0)))

    @property
    def between_programs_ns(self) -> int:
        """Time in which programs waited for programs (see ``causes.BETWEEN_PROGRAMS``)."""
        return sum(self.causes.get(cause, 0) for cause in BETWEEN_PROGRAMS)

    @property
    def filesystem_ns(self) -> int:
        """Time in calls without the waits of programs for programs."""
        return self.latency_ns - self.between_programs_ns

    @property
    def causes_recorded(self) -> bool:
        """False for an import, which has the lengths of calls alone (see ``remarks``)."""
        return not self.meta.get("imported")

    @property
    def commits_recorded(self) -> bool:
        """False if the tier had no journal events: no commits then says nothing."""
        return self.meta.get("tier") not in ("T0", "T1")

    @property
    def named_share(self) -> float:
        """The part of blocked time that has a named cause; 1.0 if nothing was blocked."""
        return self.blocked_named_ns / self.split.blocked_ns if self.split.blocked_ns else 1.0

    @property
    def facts(self) -> dict[str, Any]:
        """The Python values that stages of insights need (``stage.Work.facts``)."""
        return {
            "evidence": self.evidence,
            "lookups": self.lookups,
            "lasted_ns": self.shown_ns,
        }

    def to_json(self) -> dict[str, Any]:
        """Return the object that ``explain --json`` prints."""
        return {
            "trace": str(self.trace),
            "calls": self.n_calls,
            "insights": (insights := [asdict(insight) for insight in self.insights]),
            "findings": insights,  # the former name of insights
            "frozen": asdict(self.frozen) | {"text": self.frozen.sentence} if self.frozen else None,
            "shown": self.selection.label,
            "latency_ns": self.latency_ns,
            "filesystem_ns": self.filesystem_ns,
            "sum_error_ns": self.split.sum_error_ns,
            "blocked_ns": self.split.blocked_ns,
            "blocked_named_ns": self.blocked_named_ns,
            "causes": self.causes,
            "by_syscall": {name: _call_json(call) for name, call in self.by_syscall.items()},
            **self.callers.to_json(),
            "user_code": self.user_code.to_json() if self.user_code else None,
            "measurement_ns": self.evidence.measurement_ns,
            "commits": _commits_json(self.commits),
            "commits_asked_by": [asdict(asker) for asker in self.askers.programs],
            "blame": asdict(self.commits.charges),
            "cpu": self.cpu.to_json() if self.cpu else None,
            "lookups": [asdict(cost) | {"text": cost.sentence} for cost in self.lookups],
            "culprits": [asdict(culprit) for culprit in self.culprits],
            "chains": [[asdict(link) for link in chain] for chain in self.chains],
            "origins": [asdict(origin) for origin in self.origins],
            "segment_error_ns": self.split.segment_error_ns,
            "without_segment_ns": self.split.without_segment_ns,
            "complete": bool(self.meta.get("complete", False)),
            "lost": int(self.meta.get("lost", 0)),
            "tier": self.meta.get("tier", "unknown"),
            "partial": self.remarks,
            "unknown_stacks": [{**asdict(stack), "rule": stack.rule} for stack in self.unknown],
        }


def explain(
    trace: Trace | Path | str,
    rules: Sequence[Rule] | None = None,
    *,
    blame: bool = False,
    edges: Path | None = None,
    selection: Selection = WHOLE,
    progress: Progress = unseen,
) -> Explanation:
    """Split the time of every call of a trace by cause.

    Args:
        trace: An opened trace, or its directory.
        rules: By default the shipped ones.
        blame: Also find victims and culprits.
        edges: Write these, wait by wait, to this Parquet file.
        selection: The calls to show. Calls that kept them waiting may be outside it.
        progress: Called with the phase and the share of all that is done.

    Raises:
        SpoolscopeError: the directory is not a trace, or is damaged; no call is selected.
    """
    opened = trace if isinstance(trace, Trace) else Trace.open(trace)
    with opened.connect() as con:
        found = explain_with(
            con,
            opened,
            rules,
            blame=blame or edges is not None,
            selection=selection,
            progress=progress,
        )
        if edges is not None:
            if TOO_LONG in found.remarks:
                raise SpoolscopeError(TOO_LONG, remedy="record with --rotate, and ask each part")
            real = opened.names is not None or not opened.meta.get("pseudonymised")
            write_edges(con, edges, private=real)
        return found


def explain_with(
    con: duckdb.DuckDBPyConnection,
    trace: Trace,
    rules: Sequence[Rule] | None = None,
    *,
    blame: bool = False,
    selection: Selection = WHOLE,
    progress: Progress = unseen,
) -> Explanation:
    """Explain on an open connection, which then has ``named_waits`` and more tables."""
    bound_resources(con, int(trace.meta["counts"]["syscalls"]))
    show = Phases(progress, PHASES if blame else {**PHASES, BLAMING: 0})
    show(SPLITTING)
    shown = select(con, trace, selection)
    work = begin(con, trace.meta, rules, shown.condition, shown.span)
    work.make("call_totals", "named_waits")
    parts = check_split(con)
    show(ADDING)
    by_call = latencies(con)
    causes = _causes_by_syscall(con)
    totals = {cause: sum(c.get(cause, 0) for c in causes.values()) for cause in CAUSES}
    show(CAUSING)
    commits = study_commits(work)
    families = Families(con)
    work.make("process_causes", "path_causes")
    callers = study_callers(con, families, trace.meta.get("spools") or [])
    askers = study_askers(con, families, callers.of_process, whole=selection.is_whole)
    explanation = Explanation(
        trace=trace.path,
        meta=trace.meta,
        n_calls=sum(call.n for call in by_call),
        latency_ns=sum(call.total_ns for call in by_call),
        split=parts,
        blocked_named_ns=parts.blocked_ns - totals["unexplained"],
        causes={cause: ns for cause, ns in totals.items() if ns},
        by_syscall={c.syscall: CallTime(c, causes.get(c.syscall, {})) for c in by_call},
        commits=commits,
        unknown=unknown_stacks(con),
        cpu=study_cpu(work),
        evidence=gather(con, trace, families, callers.of_process, askers.forcing, shown.span),
        selection=selection,
        callers=callers,
        frozen=frozen_by(con, trace.meta),
        user_code=study_user_code(con, trace.meta),
        askers=askers,
    )
    work.make("directory_waits")
    explanation.lookups.extend(study_lookups(con, trace.meta, explanation.filesystem_ns))
    work.facts |= explanation.facts
    explanation.insights.extend(find_insights(work))
    explanation.remarks.extend(remarks(con, trace.meta, parts, blame=blame))
    if blame:
        show(BLAMING)
        try:
            work.make("edges")
            found = culprits(con), longest_chains(con), origins(con)
        except duckdb.OutOfMemoryException:
            explanation.remarks.append(TOO_LONG)
        else:
            explanation.culprits.extend(found[0])
            explanation.chains.extend(found[1])
            explanation.origins.extend(found[2])
    return explanation


def bound_resources(con: duckdb.DuckDBPyConnection, calls: int) -> None:
    """Limit memory and threads of DuckDB by the length of a trace; it keeps the rest in files."""
    limit = min(MOST_MB, LEAST_MB + calls // CALLS_A_MB)
    con.execute(f"SET memory_limit = '{limit}MB'")
    con.execute("SET temp_directory = '{}'".format(str(scratch()).replace("'", "''")))
    if calls < ONE_THREAD:
        con.execute("SET threads = 1")
    con.execute("SET preserve_insertion_order = false")
    con.execute("SET parquet_metadata_cache = true")  # hundreds of statements read the same files
    # Where DuckDB takes a side of an ASOF join for small, it compares all pairs of rows: that takes
    # ten times as long for the 23,000 requests of a sample.
    con.execute("SET asof_loop_join_threshold = 0")


def _causes_by_syscall(con: duckdb.DuckDBPyConnection) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = {}
    for syscall, cause, ns in con.execute(_BY_SYSCALL).fetchall():
        found.setdefault(syscall, {})[cause] = ns
    order = list(CAUSES)
    return {
        name: dict(sorted(causes.items(), key=lambda item: order.index(item[0])))
        for name, causes in found.items()
    }


def _commits_json(commits: CommitReport) -> dict[str, Any]:
    found = asdict(commits)
    del found["charges"]
    return found


def _call_json(call: CallTime) -> dict[str, Any]:
    latency = asdict(call.latency)
    del latency["syscall"]
    return {**latency, "causes": call.causes}
