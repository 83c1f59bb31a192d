"""The goals of a replay: the limit of each, and the sentence if it is missed.

The certificate of a run compares its numbers with them; the verdict on a candidate needs some.
"""

from dataclasses import dataclass

LATE_FOR_A_VERDICT_NS = 100_000_000
"""A candidate with 1 % of its calls later than this gets no verdict at the recorded pace."""


@dataclass(frozen=True)
class Goal:
    """A number of a run that has a limit.

    Attributes:
        name: Its name in run.json.
        limit: Largest absolute value that meets the goal.
        unit: Unit of limit and value: "share" (1 is all), "names", "ns" or "ppm".
        meaning: Its meaning, as the head of a row.
        missed: Beginning of the sentence for a missed goal, with a place for the value.
        below: The same for a negative value, if the words differ.
        against_recording: It compares the run with the recording: a difference is a result, not an
            error, on another filesystem, at another pace or with more users.
    """

    name: str
    limit: float
    unit: str
    meaning: str
    missed: str
    below: str = ""
    against_recording: bool = False

    def is_met(self, value: float) -> bool:
        """Return whether a value keeps within the limit."""
        return abs(value) <= self.limit

    def sentence(self, value: float, detail: str = "") -> str:
        """Return a sentence for a value that misses the goal; ``detail`` is added to it."""
        said = self.below if value < 0 and self.below else self.missed
        limit = self.shown(self.limit)
        return f"{said.format(self.shown(abs(value)))}{detail} (goal: {limit} at most)"

    def shown(self, value: float) -> str:
        """Return a value with three digits and its unit."""
        match self.unit:
            case "ns":
                return time(value)
            case "ppm":
                return share(value / 1e6)
            case "names":
                return f"{value:,.0f}"
            case _:
                return share(value)


def share(value: float) -> str:
    """Return a share as per cent, with three digits."""
    return f"{100 * value:.3g} %"


def time(ns: float) -> str:
    """Return nanoseconds in the unit that suits them, with three digits."""
    for unit, size in (("s", 1e9), ("ms", 1e6), ("µs", 1e3)):
        if ns >= size:
            return f"{ns / size:.3g} {unit}"
    return f"{ns:.0f} ns"


OTHER_RESULT = Goal(
    "other_result", 0.001, "share", "calls with another result",
    "{} of the calls had another result",
)  # fmt: skip
NOT_EXECUTED = Goal(
    "not_executed", 0.001, "share", "recorded calls not executed",
    "{} of the calls to be made were not executed",
)  # fmt: skip
TREE_DIFFERS = Goal(
    "tree_differs", 0, "names", "names of the final tree that differ",
    "{} names of the final tree differ",
)  # fmt: skip
LATE_BY_MACHINE = Goal(
    "lateness_by_machine_p99_ns", 100_000, "ns", "late by the machine, p99",
    "the machine made 1 % of the calls over {} late",
)  # fmt: skip
DRIFT = Goal(
    "drift_ppm", 1000, "ppm", "drift: growth of lateness with time",
    "the replay fell behind by {} of the time that passed",
    "the replay caught up by {} of the time that passed",
)  # fmt: skip
MAKESPAN = Goal(
    "makespan_error", 0.01, "share", "first call to last, against the recording",
    "the run took {} longer than the recording",
    "the run took {} less than the recording",
    against_recording=True,
)  # fmt: skip
IN_FLIGHT = Goal(
    "in_flight_emd_by_mean", 0.02, "share", "calls in flight, distance by mean",
    "the number of calls in flight differs by {} of its mean",
    against_recording=True,
)  # fmt: skip

GOALS = {
    goal.name: goal
    for goal in (
        OTHER_RESULT, NOT_EXECUTED, TREE_DIFFERS, LATE_BY_MACHINE, DRIFT, MAKESPAN, IN_FLIGHT,
    )
}  # fmt: skip
"""All goals by name, in the order in which they are shown."""
