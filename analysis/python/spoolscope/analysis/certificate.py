"""The fidelity certificates that the replayer gave the runs of a candidate."""

from collections.abc import Sequence
from dataclasses import dataclass

from spoolscope.analysis.outcomes import Run
from spoolscope.traces import results_certificate


@dataclass(frozen=True)
class Certificate:
    """The certificate of the least faithful run of a candidate.

    Attributes:
        candidate: Name of the candidate; rounds is its number of runs. Of these, faithful met every
            goal, and unfaithful did not; the others had no time to keep.
        data: The certificate as in run.json.
        missed: Names of the goals that any run missed; "accident" if tasks died, or waits were
            given up.
    """

    candidate: str
    rounds: int
    faithful: int
    unfaithful: int
    data: results_certificate.Certificate
    missed: frozenset[str] = frozenset()

    @property
    def verdict(self) -> str:
        """The verdict: faithful, unfaithful or untimed."""
        return self.data.verdict

    @property
    def sentences(self) -> list[str]:
        """Sentences on why the run is not faithful, or what it is."""
        if reasons := [f"{reason}." for reason in self.data.reasons]:
            return reasons
        if self.verdict == "untimed":
            return ["Results are the recorded ones; no time was to be kept."]
        return ["Every goal that applies was met."]


def certificates(runs: Sequence[Run]) -> list[Certificate]:
    """Return one certificate per candidate; none for runs of an older replayer."""
    found = []
    for name in dict.fromkeys(run.candidate for run in runs):
        given = [run.result.certificate for run in runs if run.candidate == name]
        known = [data for data in given if data]
        if known:
            faithful, unfaithful = (
                sum(data.verdict == word for data in known) for word in ("faithful", "unfaithful")
            )
            missed = frozenset(goal for data in known for goal in _missed(data))
            worst = max(known, key=_badness)
            found.append(Certificate(name, len(known), faithful, unfaithful, worst, missed))
    return found


def faithful_runs(runs: Sequence[Run]) -> tuple[int, int] | None:
    """Return the number of faithful runs and of all runs; None if no pace was to be kept."""
    given = [one for one in certificates(runs) if one.verdict != "untimed"]
    return (sum(one.faithful for one in given), sum(one.rounds for one in given)) if given else None


def _missed(data: results_certificate.Certificate) -> list[str]:
    missed = [goal.name for goal in data.goals if goal.met is False]
    return missed + ["accident"] * (len(data.reasons) > len(missed))


def _badness(data: results_certificate.Certificate) -> tuple[int, float]:
    late = data.lateness
    return len(data.reasons), float(late.parts["machine"].p99_ns or 0) if late else 0.0
