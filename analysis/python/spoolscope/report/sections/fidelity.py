"""The section on the fidelity of the replay."""

from collections.abc import Mapping, Sequence

from spoolscope.analysis.candidate_runs import Candidate
from spoolscope.analysis.compare import Comparison
from spoolscope.analysis.latency import Curve, supported
from spoolscope.analysis.lateness import BY_MACHINE, lateness
from spoolscope.analysis.wording import count, duration, percent
from spoolscope.report.figures.latency import tails
from spoolscope.report.inputs import Inputs
from spoolscope.report.latency_tables import curve_table, over
from spoolscope.report.page import Figure, Section, TableBlock
from spoolscope.traces.goals import LATE_FOR_A_VERDICT_NS, NOT_EXECUTED, OTHER_RESULT, share, time
from spoolscope.traces.results import Root

anchor = "fidelity"
CURVES = 7
"""Most candidates with a line in the figure."""


def applies(page: Inputs) -> bool:
    """Return True if the page is about a replay."""
    return page.found is not None


def make(page: Inputs) -> Section:
    """Lay out the fidelity of the replay."""
    found = page.comparison
    rows = [_fidelity_row(name, c) for name, c in found.candidates.items()]
    blocks: list[Figure | TableBlock] = [
        TableBlock(
            "Fidelity",
            ["candidate", ">calls", ">executed", ">skipped", ">other result",
             ">of the filesystem", ">final tree",
">late p50", ">late p99", ">makespan", "verdict allowed"],
            rows,
            "The worst run of each candidate. Late: issued after its scheduled time, including "
            "the wait for the calls it depends on. A candidate over "
            f"{OTHER_RESULT.shown(OTHER_RESULT.limit)} divergent, under "
            f"{share(1 - NOT_EXECUTED.limit)} executed, with a different final tree, or (at "
            f"original pace) with p99 over {time(LATE_FOR_A_VERDICT_NS)} late gets no verdict.",
        )
    ]  # fmt: skip
    if late := _lateness(found):
        blocks.append(late)
    skips = {name: c.fidelity.skips for name, c in found.candidates.items()}
    blocks.append(_causes({name: c.fidelity.causes for name, c in found.candidates.items()}))
    blocks.append(_counted("Calls that were not made", "call and reason", skips))
    return Section(
        anchor, "Fidelity", "Fidelity", "How true the replay was to the recording.", blocks
    )


def _lateness(found: Comparison) -> Figure | None:
    """Return the lateness of calls in the first round; None if no pace was kept."""
    first = {run.candidate: run for run in reversed(found.replay.runs)}
    curves = {name: lateness(first[name]) for name in list(found.candidates)[:CURVES]}
    curves = {name: curve for name, curve in curves.items() if curve}
    if not curves:
        return None
    n = next(iter(curves.values()))[0].n
    return Figure(
        key="lateness",
        title="Share of calls that began later than this",
        finding=_latest(curves),
        caption=f"Both axes are logarithmic. First round, {count(n)} calls; those that began "
        "in time are not drawn. By the target: calls that it depends on took longer than "
        "recorded. By the machine: it did not run the thread in time.",
        table=curve_table(curves),
        plot=tails(curves),
    )


def _latest(curves: Mapping[str, Sequence[Curve]]) -> str:
    """Return the largest p99 of lateness by the machine, in a sentence."""
    late = {
        name: over(curve, 0.99)
        for name, found in curves.items()
        for curve in found
        if curve.name == BY_MACHINE and supported(curve.n, 0.99)
    }
    if not late:
        return "There are too few calls to say how late one in a hundred was."
    worst = max(late, key=lambda name: late[name])
    said = f"One call in a hundred began over {duration(late[worst])} late because of the machine"
    return f"{said} on {worst}, on the others less." if len(late) > 1 else f"{said}."


def _causes(found: Mapping[str, Sequence[Root]]) -> TableBlock:
    rows = []
    for name, causes in found.items():
        for cause in causes:
            known = f"{cause.class_} [{cause.source}]" if cause.class_ else "no"
            example = f"{cause.example.thread_seq or '-'} {cause.example.path or ''}"
            rows.append(
                [name, cause.cause, cause.path_class, count(cause.n),
                 count(cause.followed), known, example.strip()]
            )  # fmt: skip
    return TableBlock(
        "Divergences by first cause",
        [
            "candidate",
            "first cause",
            "files",
            ">times",
            ">followed",
            "of the filesystem",
            "example",
        ],
        rows,
        "All rounds together. Followed: calls on what an earlier divergence had met. Of the "
        "filesystem: a documented difference between the recorded type and the candidate's, with "
        "its source; it is not counted as another result. Example: thread:number of the call in "
        "the trace, and its path."
        if rows
        else "None.",
    )


def _counted(title: str, what: str, counts: Mapping[str, Mapping[str, int]]) -> TableBlock:
    keys = list(dict.fromkeys(key for found in counts.values() for key in found))
    return TableBlock(
        title,
        [what, *(f">{name}" for name in counts)],
        [[key, *(count(found.get(key, 0)) for found in counts.values())] for key in keys],
        "All rounds together." if keys else "None.",
    )


def _fidelity_row(name: str, candidate: Candidate) -> list[str]:
    f = candidate.fidelity
    return [
        name,
        count(f.syscalls),
        percent(f.executed_share, 2),
        count(f.skipped),
        percent(f.divergent_share, 3),
        count(f.of_filesystem),
        f"{count(f.mismatched)} of {count(f.checked)}" if f.checked else "not checked",
        duration(f.lateness_p50_ns),
        duration(f.lateness_p99_ns),
        duration(candidate.makespan_ns),
        "yes" if f.ok else "; ".join(f.problems),
    ]
