"""Decisions on the demands of --fail-if: only an interval decides."""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from spoolscope.analysis.demands.language import Demand
from spoolscope.analysis.wording import duration, interval, percent

FAILS, PASSES, UNDECIDED = "fails", "passes", "undecided"
SAID = {FAILS: "holds (exit 4)", PASSES: "does not hold", UNDECIDED: "undecided (exit 5)"}
"""Decisions in words: the comparison fails if the expression holds."""


@dataclass(frozen=True)
class Measured:
    """A measured metric: the ratio to the reference, or the value of the candidate.

    Attributes:
        value: The number that is compared with the limit; None if it could not be measured.
        low: Lower end of its 95 % interval, None if there is none; high likewise.
        why: Reason why it has no value or no interval, "" otherwise.
    """

    value: float | None
    low: float | None = None
    high: float | None = None
    why: str = ""


@dataclass(frozen=True)
class Decision:
    """The decision on one expression.

    Attributes:
        expression: The expression as it was given.
        candidate: Candidate that the decision is about.
        relative: ``value``, its interval and ``limit`` are ratios to the reference, else values.
        decision: "fails", "passes" or "undecided".
        why: Reason why it could not be decided, "" if it was.
    """

    expression: str
    candidate: str
    relative: bool
    value: float | None
    low: float | None
    high: float | None
    limit: float
    decision: str
    why: str
    unit: str

    @property
    def text(self) -> str:
        """The decision in a sentence."""
        found = self._found()
        end = f": {self.why}" if self.why else ""
        return f"{SAID[self.decision]}: {self.expression} ({self.candidate}: {found}){end}"

    def _found(self) -> str:
        if self.value is None or math.isnan(self.value):
            return "not measured"
        if self.relative:
            ends = "" if self.low is None else f", 95 % {interval(self.low, self.high)}"
            return f"{self.value:.3g} x{ends}"
        low, high = self._shown(self.low), self._shown(self.high)
        return self._shown(self.value) + ("" if self.low is None else f", 95 % {low} to {high}")

    def _shown(self, value: float | None) -> str:
        if value is None or self.unit == "ns":
            return duration(value)
        return percent(value, 2) if self.unit == "share" else f"{value:,.3g}"

    def to_json(self) -> dict[str, Any]:
        """Return the decision as ``compare --json`` has it."""
        plain = asdict(self)
        if self.value is not None and not math.isfinite(self.value):
            plain["value"] = None
        return plain


def decide(demand: Demand, candidate: str, measured: Measured, doubt: str = "") -> Decision:
    """Compare a metric with its limit.

    It fails, or passes, only if the whole interval lies beyond, or within, the limit.

    Args:
        demand: The expression.
        candidate: Candidate that the decision is about.
        measured: The measured value.
        doubt: Reason why nothing can be decided; "" if there is none.
    """
    low, high, limit = measured.low, measured.high, demand.limit
    decision, why = UNDECIDED, doubt or measured.why
    if low is not None and high is not None and not doubt:
        beyond, within = demand.holds(low, high)
        decision = FAILS if beyond else PASSES if within else UNDECIDED
        why = "the interval holds the limit" if decision == UNDECIDED else ""
    elif not why:
        why = "there is no interval"
    return Decision(
        demand.text,
        candidate,
        demand.relative,
        measured.value,
        low,
        high,
        limit,
        decision,
        why,
        demand.metric.unit,
    )


def worst(decisions: Sequence[Decision]) -> str:
    """Return "fails" if any decision is that, else "undecided" if any is, else "passes"."""
    found = {decision.decision for decision in decisions}
    return next((word for word in (FAILS, UNDECIDED) if word in found), PASSES)
