"""Judgement of runs: figures beside the published ones, and verdicts on claims."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any, Literal

from spoolscope.analysis.stats import (
    MINIMUM_EFFECT,
    MINIMUM_ROUNDS,
    Estimate,
    paired,
)
from spoolscope.lab.workloads.published import Claim, Comparison, Pair, Table
from spoolscope.lab.workloads.throughput import by_step

Row = Mapping[str, Any]
"""``run.json`` of a run."""
Verdict = Literal["held", "does not hold", "not decided"]
HELD: Verdict = "held"
NOT_HELD: Verdict = "does not hold"
OPEN: Verdict = "not decided"


@dataclass(frozen=True)
class Figure:
    """A figure of a candidate, published and today's.

    Attributes:
        then: The published figure, or None; ``then_ratio`` is its ratio to the reference.
        rounds: Today's figure of each round.
        ratio: Paired ratio of today's rounds to the reference's; None for the reference itself.
    """

    candidate: str
    metric: str
    then: float | None
    then_ratio: float | None
    rounds: tuple[float, ...]
    ratio: Estimate | None

    @property
    def now(self) -> float | None:
        """The mean of the rounds; None if the workload had no such step."""
        return fmean(self.rounds) if self.rounds else None

    def to_json(self) -> dict[str, Any]:
        """Return it as ``results.json`` has it."""
        return {
            "candidate": self.candidate,
            "metric": self.metric,
            "then": self.then,
            "then_ratio": self.then_ratio,
            "now": self.now,
            "rounds": list(self.rounds),
            "ratio": None if self.ratio is None else vars(self.ratio),
        }


@dataclass(frozen=True)
class Judged:
    """A claim and the verdict on it.

    Attributes:
        n: Number of rounds for the verdict, the fewest of its pairs.
        why: Reason for the verdict, or what is missing, in a few words.
        ratios: The ratio left / right of each pair, None if unknown.
        missing: Names of candidates that were not run.
        today: Candidates without the published options by which it is judged; none if those that
            it names were run.
    """

    claim: Claim
    verdict: Verdict
    n: int
    why: str
    ratios: tuple[Estimate | None, ...]
    missing: tuple[str, ...] = ()
    today: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return it as ``results.json`` has it."""
        pairs = [
            {
                "left": "/".join(pair.left),
                "right": "/".join(pair.right),
                "relation": pair.relation,
                "times": pair.times,
                "ratio": None if ratio is None else vars(ratio),
            }
            for pair, ratio in zip(self.claim.pairs, self.ratios, strict=True)
        ]
        return {
            "text": self.claim.text,
            "verdict": self.verdict,
            "n": self.n,
            "why": self.why,
            "missing": list(self.missing),
            "today": list(self.today),
            "pairs": pairs,
        }


class Results:
    """The figures of all runs, by candidate and round."""

    def __init__(self, comparison: Comparison | None, rows: Sequence[Row], reference: str) -> None:
        self.comparison = comparison
        self.reference = reference
        self.candidates = list(dict.fromkeys(str(row["candidate"]) for row in rows))
        if reference in self.candidates:
            self.candidates.remove(reference)
            self.candidates.insert(0, reference)
        self.throughput = by_step(rows)
        self._figures = {(row["candidate"], row["round"]): row["figures"] for row in rows}
        self._scale = float(rows[0].get("scale", 1.0)) if rows else 1.0
        self._rounds = sorted({int(row["round"]) for row in rows})

    def by_round(self, candidate: str, metric: str) -> list[float | None]:
        """Return a metric of each round, None where it is missing."""
        found = (self._figures.get((candidate, number), {}) for number in self._rounds)
        return [figures.get(metric) for figures in found]

    def figure(self, table: Table, candidate: str, metric: str) -> Figure:
        """Return a figure beside the published one, and both as ratios to the reference."""
        then = then_ratio = None
        if self.comparison is not None:
            then = self.comparison.value(table, candidate, metric)
            of_reference = self.comparison.value(table, self.reference, metric)
            then_ratio = then / of_reference if then is not None and of_reference else None
        values = [value for value in self.by_round(candidate, metric) if value is not None]
        apart = candidate != self.reference
        ratio = self._ratio((candidate, metric), (self.reference, metric)) if apart else None
        return Figure(candidate, metric, then, then_ratio, tuple(values), ratio)

    def figures(self, table: Table) -> list[list[Figure]]:
        """Return the figures of all candidates for each column of a table."""
        return [
            [self.figure(table, candidate, column.metric) for candidate in self.candidates]
            for column in table.columns
        ]

    def judge(self, claim: Claim) -> Judged:
        """Return the verdict on a claim in these runs.

        It holds if all its relations hold, and fails if one fails, by their intervals. Candidates
        with the published options and without are not mixed: the options might make a difference.
        """
        named = self._named(claim)
        missing = tuple(name for name in named.values() if self._run_as(name) is None)
        ratios = tuple(self._ratio_of(pair, named) for pair in claim.pairs)
        verdicts = [
            OPEN if ratio is None else relation_holds(pair, ratio)
            for pair, ratio in zip(claim.pairs, ratios, strict=True)
        ]
        verdict = NOT_HELD if NOT_HELD in verdicts else OPEN if OPEN in verdicts else HELD
        too_small = verdict == NOT_HELD and self._scale < claim.least_scale
        verdict = OPEN if too_small else verdict
        n = min((ratio.n for ratio in ratios if ratio is not None), default=0)
        why = ""
        if too_small:
            why = f"a load of this scale does not refute it: --scale {claim.least_scale:g}"
        elif verdict == OPEN and missing:
            why = f"not run: {', '.join(missing)}"
        elif verdict == OPEN and n < MINIMUM_ROUNDS:
            why = f"needs {MINIMUM_ROUNDS} rounds"
        today = tuple(name for before, name in named.items() if name != before)
        return Judged(claim, verdict, n, why, ratios, missing if verdict == OPEN else (), today)

    def _named(self, claim: Claim) -> Mapping[str, str]:
        """Return {candidate of a claim: the name of the one that stands for it}.

        These are the published ones, unless more of the plain ones were run.
        """
        published = {name: name for name in claim.candidates}
        plain = self.comparison.plain(claim) if self.comparison else None

        def run(named: Mapping[str, str]) -> int:
            return sum(self._run_as(name) is not None for name in named.values())

        return plain if plain and run(plain) > run(published) else published

    def _run_as(self, name: str) -> str | None:
        """Return the candidate that was run for a name in a claim, perhaps on a device model."""
        named = (run for run in self.candidates if run == name or run.partition("@")[0] == name)
        return next(named, None)

    def _ratio_of(self, pair: Pair, named: Mapping[str, str]) -> Estimate | None:
        """Return left / right of a pair; None if one of the candidates was not run."""
        left, right = ((named[candidate], metric) for candidate, metric in (pair.left, pair.right))
        if self._run_as(left[0]) is None or self._run_as(right[0]) is None:
            return None
        ratio = self._ratio(left, right)
        return ratio if ratio.n else None

    def _ratio(self, left: tuple[str, str], right: tuple[str, str]) -> Estimate:
        sides = [
            self.by_round(self._run_as(candidate) or candidate, metric)
            for candidate, metric in (left, right)
        ]
        return paired(*([value or 0.0 for value in side] for side in sides))


def relation_holds(pair: Pair, ratio: Estimate) -> Verdict:
    """Return the verdict on a relation by the interval of left / right.

    A difference below ``MINIMUM_EFFECT`` counts as none, and too few rounds decide nothing.
    """
    if ratio.low is None or ratio.high is None or ratio.n < MINIMUM_ROUNDS:
        return OPEN
    if pair.relation == "alike":
        if pair.times >= ratio.high and ratio.low >= 1 / pair.times:
            return HELD
        return NOT_HELD if ratio.low > pair.times or ratio.high < 1 / pair.times else OPEN
    clear = 1 + MINIMUM_EFFECT if pair.times == 1 else pair.times
    if ratio.high < 1 / clear:
        return HELD
    return NOT_HELD if ratio.low > 1 / clear else OPEN


def judged(results: Results) -> list[Judged]:
    """Judge all claims of the comparison that the runs repeat."""
    claims: Iterable[Claim] = results.comparison.claims if results.comparison else ()
    return [results.judge(claim) for claim in claims]
