"""Fidelity of a replay; a candidate that was not replayed faithfully gets no verdict."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from spoolscope.analysis.outcomes import Replay, Run
from spoolscope.analysis.wording import duration, percent
from spoolscope.traces.goals import LATE_FOR_A_VERDICT_NS, NOT_EXECUTED, OTHER_RESULT, TREE_DIFFERS
from spoolscope.traces.results import Root, RunResult


@dataclass(frozen=True)
class Fidelity:
    """Fidelity over all runs of a candidate; single numbers are those of the worst run.

    Attributes:
        syscalls: Calls of the trace that were asked for, those left out on purpose among them.
        executed: Calls executed in the run that executed the smallest share; skipped of the calls
            to be made it did not execute.
        divergent: Calls with another result in the run with the largest share of them;
            divergent_share is that share.
        of_filesystem: Calls with another result because of the filesystem, directly or as a
            consequence.
        lateness_p50_ns: Median of (issued - scheduled) in the worst run; p99 likewise.
        mismatched: Names of the final tree that differ, of checked.
        causes: Kinds of first causes as in divergences.json, added up over the runs.
        skips: {what and why: number}.
        late_by_machine_p99_ns: The part of the p99 lateness that the machine, or the replayer,
            caused; None if unknown.
        problems: Sentences on why there can be no verdict; empty if there can.
    """

    syscalls: int
    executed: int
    divergent: int
    divergent_share: float
    of_filesystem: int
    skipped: int
    lateness_p50_ns: int | None
    lateness_p99_ns: int | None
    checked: int
    mismatched: int
    causes: list[Root]
    skips: dict[str, int]
    problems: list[str]
    late_by_machine_p99_ns: int | None = None

    @property
    def late(self) -> bool:
        """True if the pace was not kept."""
        return self.lateness_p99_ns is not None and self.lateness_p99_ns > LATE_FOR_A_VERDICT_NS

    @property
    def ok(self) -> bool:
        """True if a verdict can rest on the runs."""
        return not self.problems

    @property
    def executed_share(self) -> float:
        """Executed calls, as a part of those that were to be made."""
        return _executed_share(self)


def fidelity(runs: list[Run], pace: str) -> Fidelity:
    """Judge the runs of one candidate."""
    results = [run.result for run in runs]
    least, worst = min(results, key=_executed_share), max(results, key=_divergent_share)
    final = [run.final_state for run in results if run.final_state]
    found = Fidelity(
        syscalls=least.syscalls,
        executed=least.executed,
        divergent=worst.divergent,
        divergent_share=_divergent_share(worst),
        of_filesystem=max(run.of_filesystem for run in results),
        skipped=least.skipped,
        lateness_p50_ns=_worst(run.lateness_p50_ns for run in results),
        lateness_p99_ns=_worst(run.lateness_p99_ns for run in results),
        checked=max((state.checked for state in final), default=0),
        mismatched=max((state.mismatched for state in final), default=0),
        causes=_causes(runs),
        skips=_skips(runs),
        problems=[],
        late_by_machine_p99_ns=_by_machine(results),
    )
    found.problems.extend(_problems(found, pace))
    return found


def compared_runs(replay: Replay) -> list[Run]:
    """Return the runs whose calls are compared.

    A candidate that did not execute the calls to be made has no part in them: the others would be
    compared by the few calls that it executed. If fewer than two candidates are left, all are
    compared.
    """
    left_out = {run.candidate for run in replay.runs if not _executed(run.result)}
    left = [run for run in replay.runs if run.candidate not in left_out]
    return left if len({run.candidate for run in left}) > 1 else replay.runs


def _executed(run: RunResult) -> bool:
    return NOT_EXECUTED.is_met(1 - _executed_share(run))


def _executed_share(run: RunResult | Fidelity) -> float:
    """Return the executed share of the calls to be made: not of those left out on purpose."""
    to_make = run.executed + run.skipped
    return run.executed / to_make if to_make else 1.0


def _divergent_share(run: RunResult) -> float:
    return run.divergent / max(run.executed, 1)


def _problems(found: Fidelity, pace: str) -> list[str]:
    problems = []
    if not OTHER_RESULT.is_met(found.divergent_share):
        problems.append(f"{percent(found.divergent_share)} of calls had another result")
    if not NOT_EXECUTED.is_met(1 - found.executed_share):
        problems.append(f"only {percent(found.executed_share)} of calls were executed")
    if not TREE_DIFFERS.is_met(found.mismatched):
        problems.append(f"{found.mismatched:,} names of the final tree differ")
    # Lateness caused by the target is a result: the target cannot keep up.
    late = found.late_by_machine_p99_ns
    if late is None and pace != "think":  # where the schedule itself moves with slow calls
        late = found.lateness_p99_ns
    if pace != "afap" and late is not None and late > LATE_FOR_A_VERDICT_NS:
        problems.append(f"1 % of calls were issued over {duration(late)} late")
    return problems


def _worst(values: Iterable[int | None]) -> int | None:
    return max((value for value in values if value is not None), default=None)


def _by_machine(results: Sequence[RunResult]) -> int | None:
    """Return the p99 of the machine's part, the worst run; None if not all runs know it."""
    certificates = [run.certificate for run in results]
    late = [one.lateness.parts["machine"].p99_ns for one in certificates if one and one.lateness]
    return _worst(late) if len(late) == len(results) else None


def _causes(runs: list[Run]) -> list[Root]:
    """Add up the kinds of first causes over the runs, the most frequent first."""
    kinds: dict[tuple[str, str, str, str | None], Root] = {}
    for run in runs:
        for root in run.divergences.roots:
            key = (root.cause, root.path_class, root.filesystem, root.class_)
            n, followed = (kinds[key].n, kinds[key].followed) if key in kinds else (0, 0)
            first = kinds.get(key, root)
            kinds[key] = replace(first, n=n + root.n, followed=followed + root.followed)
    return sorted(kinds.values(), key=lambda kind: -(kind.n + kind.followed))


def _skips(runs: list[Run]) -> dict[str, int]:
    counts: Counter[str] = Counter()
    for run in runs:
        counts.update(run.divergences.skipped)
    return dict(counts.most_common())
