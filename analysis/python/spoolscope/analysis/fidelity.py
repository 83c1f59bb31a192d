"""How true a replay was; a candidate that was not replayed truly gets no verdict."""

from collections import Counter
from dataclasses import dataclass
from typing import Any

from spoolscope.analysis.outcomes import Run
from spoolscope.analysis.wording import duration, percent

DIVERGENT_LIMIT = 0.001
EXECUTED_LIMIT = 0.999
LATENESS_LIMIT_NS = 100_000_000


@dataclass(frozen=True)
class Fidelity:
    """Over all runs of a candidate, the worst run where there is one number.

    Attributes:
        executed: Calls executed, of syscalls recorded; divergent of them had another result, and
            of_filesystem another one that is its filesystem's, or follows from such a one.
        skipped: Calls deliberately not executed.
        lateness_p50_ns: Median and p99 of (issued - scheduled), the worst run.
        mismatched: Names of the final tree that differ, of checked.
        causes: Kinds of first causes as in divergences.json, runs added up.
        skips: {what and why: number}.
        late_by_machine_p99_ns: Of that the part that the machine, or the replayer, is to blame for;
            None if that is not told.
        problems: Why it cannot carry a verdict, one sentence each; empty if it can.
    """

    syscalls: int
    executed: int
    divergent: int
    of_filesystem: int
    skipped: int
    lateness_p50_ns: int | None
    lateness_p99_ns: int | None
    checked: int
    mismatched: int
    causes: list[dict[str, Any]]
    skips: dict[str, int]
    problems: list[str]
    late_by_machine_p99_ns: int | None = None

    @property
    def late(self) -> bool:
        """Whether the pace was not kept."""
        return self.lateness_p99_ns is not None and self.lateness_p99_ns > LATENESS_LIMIT_NS

    @property
    def ok(self) -> bool:
        """Whether the runs can carry a verdict."""
        return not self.problems

    @property
    def divergent_share(self) -> float:
        """Divergent calls, as a part of executed ones."""
        return self.divergent / self.executed if self.executed else 0.0


def fidelity(runs: list[Run], pace: str) -> Fidelity:
    """Judge the runs of one candidate."""
    rows = [run.row for run in runs]
    worst = max(rows, key=lambda row: row.get("divergent", 0) / max(row.get("executed", 0), 1))
    final = [row.get("final_state") or {} for row in rows]
    found = Fidelity(
        syscalls=int(worst.get("syscalls", 0)),
        executed=int(worst.get("executed", 0)),
        divergent=int(worst.get("divergent", 0)),
        of_filesystem=max(int(row.get("of_filesystem", 0)) for row in rows),
        skipped=int(worst.get("skipped", 0)),
        lateness_p50_ns=_worst(rows, "lateness_p50_ns"),
        lateness_p99_ns=_worst(rows, "lateness_p99_ns"),
        checked=max((int(state.get("checked") or 0) for state in final), default=0),
        mismatched=max((int(state.get("mismatched") or 0) for state in final), default=0),
        causes=_causes(runs),
        skips=_skips(runs),
        problems=[],
        late_by_machine_p99_ns=_by_machine(rows),
    )
    found.problems.extend(_problems(found, pace))
    return found


def _problems(found: Fidelity, pace: str) -> list[str]:
    problems = []
    if found.divergent_share > DIVERGENT_LIMIT:
        problems.append(f"{percent(found.divergent_share)} of calls had another result")
    if found.syscalls and found.executed < EXECUTED_LIMIT * found.syscalls:
        problems.append(f"only {percent(found.executed / found.syscalls)} of calls were executed")
    if found.mismatched:
        problems.append(f"{found.mismatched:,} names of the final tree differ")
    # What the target made late is a result: it cannot keep up.
    late = found.late_by_machine_p99_ns
    late = found.lateness_p99_ns if late is None else late
    if pace == "original" and late is not None and late > LATENESS_LIMIT_NS:
        problems.append(f"1 % of calls were issued over {duration(late)} late")
    return problems


def _worst(rows: list[dict[str, Any]], key: str) -> int | None:
    return max((int(row[key]) for row in rows if row.get(key) is not None), default=None)


def _by_machine(rows: list[dict[str, Any]]) -> int | None:
    told = [(row.get("certificate") or {}).get("lateness") for row in rows]
    known = [late["parts"]["machine"]["p99_ns"] for late in told if late]
    return max(known) if known and len(known) == len(rows) else None


def _causes(runs: list[Run]) -> list[dict[str, Any]]:
    """Add up the kinds of first causes over the runs, the most frequent first."""
    kinds: dict[tuple[str, ...], dict[str, Any]] = {}
    for run in runs:
        for root in run.divergences.get("roots", []):
            key = tuple(str(root[name]) for name in ("cause", "path_class", "filesystem", "class"))
            kind = kinds.setdefault(key, {**root, "n": 0, "followed": 0})
            kind["n"] += int(root["n"])
            kind["followed"] += int(root["followed"])
    return sorted(kinds.values(), key=lambda kind: -int(kind["n"] + kind["followed"]))


def _skips(runs: list[Run]) -> dict[str, int]:
    counts: Counter[str] = Counter()
    for run in runs:
        counts.update(run.divergences.get("skipped", {}))
    return dict(counts.most_common())
