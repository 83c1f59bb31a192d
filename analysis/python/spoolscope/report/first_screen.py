"""The first screen of a page beside the verdict: figure, facts, and how certain it is."""

from collections.abc import Mapping

from spoolscope.analysis.causes import charged
from spoolscope.analysis.certificate import faithful_runs
from spoolscope.analysis.compare import Comparison
from spoolscope.analysis.explain import Explanation
from spoolscope.analysis.metrics import PRIMARY
from spoolscope.analysis.study import Study
from spoolscope.analysis.why import by_family, family_label
from spoolscope.analysis.wording import count, duration, percent
from spoolscope.report.figures import causes as cause_figures
from spoolscope.report.inputs import Inputs
from spoolscope.report.page import Fact, Figure, Table
from spoolscope.traces.goals import NOT_EXECUTED, OTHER_RESULT


def trace_hero(page: Inputs) -> Figure | None:
    """Return the figure of a trace's time, by family of calls and cause; None without time."""
    (study,) = page.studies.values()
    rows = _families(study)
    if not rows:
        return None
    return Figure(
        key="hero",
        title="Time in calls, by family of calls and cause",
        finding=study.headline,
        caption=f"{page.method} Causes under 0.5 % of every bar are only in the table.",
        table=cause_figures.cause_table(rows, "calls"),
        plot=cause_figures.stacked(rows),
    )


def _families(study: Study) -> list[tuple[str, Mapping[str, float]]]:
    table = by_family({n: c.causes for n, c in study.explanation.by_syscall.items()})
    families: dict[str, dict[str, float]] = {}
    for (family, cause), ns in table.items():
        families.setdefault(family, {})[cause] = ns
    ordered = sorted(families.items(), key=lambda item: -sum(charged(item[1]).values()))
    return [(family_label(family), causes) for family, causes in ordered[:7]]


def trace_sure(found: Explanation) -> str:
    """Return two sentences on the content of a trace."""
    recorded = duration(found.meta.get("duration_ns"))
    said = f"In {recorded}, {count(found.n_calls)} calls took {duration(found.filesystem_ns)}"
    if found.between_programs_ns:
        waited = duration(found.between_programs_ns)
        said += f" (and {waited} waiting for other programs: file locks, vfork; left out here)"
    if not found.causes_recorded:
        return said + ". Only the length of each call was recorded."
    return said + ". The parts of every call add up to its length exactly."


def trace_facts(found: Study) -> list[Fact]:
    """Return the box about a recording."""
    explanation, meta = found.explanation, found.explanation.meta
    lost, complete = int(meta.get("lost", 0)), bool(meta.get("complete", False))
    named, error = explanation.named_share, explanation.split.sum_error_ns
    return [
        Fact("complete", "yes" if complete else "no", complete),
        Fact("lost records", count(lost), lost == 0),
        Fact("sum error", f"{error} ns", error == 0),
        Fact("blocked, named", percent(named, 2), named >= 0.99)
        if explanation.causes_recorded
        else Fact("causes", "not recorded", good=False),
        Fact("tier", str(meta.get("tier", "?"))),
        Fact(
            "commits",
            count(explanation.commits.n) if explanation.commits_recorded else "not recorded",
        ),
    ]


def replay_hero(found: Comparison) -> Figure:
    """Return the figure of time per candidate: by cause if runs were recorded, else in total."""
    totals = [(name, c.metrics[PRIMARY] or 0.0) for name, c in found.candidates.items()]
    rows = [(name, dict(c.causes)) for name, c in found.candidates.items() if c.causes]
    rounds = max(c.rounds for c in found.candidates.values())
    basis = f"{count(found.n_calls)} calls, without file locking, were executed on every "
    basis += f"candidate, {rounds} {'round' if rounds == 1 else 'rounds'}."
    said = "; ".join(f"{name} {duration(ns)}" for name, ns in totals)
    if rows:
        missing = [name for name, c in found.candidates.items() if not c.causes]
        basis += " From the recorded trace of each run, mean over rounds, file locks not drawn."
        basis += f" Not recorded: {', '.join(missing)}." if missing else ""
        basis += " Causes under 0.5 % of every bar are only in the table."
        basis += f" The times above ({said}) are by the replayer's clock, and so hold its own work"
        basis += " and the recorder's around each call as well."
    else:
        basis += " Mean over rounds. The runs were not recorded, so causes"
        basis += " are not known."
    return Figure(
        key="hero",
        title="Time in calls, by candidate" + (" and cause" if rows else ""),
        finding=f"Time in calls: {said}.",
        caption=basis,
        table=cause_figures.cause_table(rows, "candidate")
        if rows
        else Table(["candidate", ">time in calls"], [[name, duration(ns)] for name, ns in totals]),
        plot=cause_figures.stacked(rows, row_height=46)
        if rows
        else cause_figures.totals(totals, row_height=46),
    )


def replay_facts(found: Comparison) -> list[Fact]:
    """Return the fidelity box for all candidates; the worst one counts."""
    all_ = [c.fidelity for c in found.candidates.values()]
    executed = min(f.executed_share for f in all_)
    divergent = max(f.divergent_share for f in all_)
    late = [f.lateness_p99_ns for f in all_ if f.lateness_p99_ns is not None]
    mismatched, checked = max(f.mismatched for f in all_), max(f.checked for f in all_)
    pace = found.replay.header.pace
    faithful = _faithful(found)
    # A certificate's goal is stricter, and only for the machine's part: if there is one, only its
    # mark counts.
    judged = late and pace == "original" and not faithful
    return [
        Fact("executed", percent(executed, 2), NOT_EXECUTED.is_met(1 - executed)),
        Fact("other result", percent(divergent, 3), OTHER_RESULT.is_met(divergent)),
        Fact(
            "tree differs",
            f"{count(mismatched)} of {count(checked)}" if checked else "not checked",
            mismatched == 0 if checked else None,
        ),
        Fact("pace", pace),
        Fact(
            "late, p99",
            duration(max(late)) if late else "-",
            not any(f.late for f in all_) if judged else None,
        ),
        Fact("rounds", str(max(c.rounds for c in found.candidates.values()))),
        *faithful,
    ]


def _faithful(found: Comparison) -> list[Fact]:
    """Return the number of faithful runs; nothing if no pace was to be kept."""
    known = faithful_runs(found.replay.runs)
    if known is None:
        return []
    faithful, runs = known
    return [Fact("faithful runs", f"{faithful} of {runs}", faithful == runs)]
