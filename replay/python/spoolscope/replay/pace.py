"""Paces, which determine when calls are due."""

import re
from dataclasses import dataclass, replace

from spoolscope.traces.errors import usage_error

HELP = (
    "original: calls come when they came (open loop); scaled=N: N times faster, likewise; "
    "think: each thread pauses as long as it did after its previous call (closed loop); "
    "afap: as fast as possible (closed loop, no pauses)."
)

REALTIME_HELP = (
    "Give tasks real-time priority (SCHED_RR) while a quarter of the CPUs' time or more is free: "
    "calls come on time where the scheduler would have them wait for a CPU."
)
# Beyond these the times of a long recording do not fit into ns, or are all the same.
SLOWEST, FASTEST = 0.001, 1_000_000


@dataclass(frozen=True)
class Pace:
    """Pace of a replay.

    In an open loop calls come at recorded times, however slow the target is: it falls behind
    visibly. In a closed loop a thread's next call waits for the one before, so that load falls
    as the target slows down.

    Attributes:
        text: The text that was given.
        loop: "open" or "closed".
        factor: Recorded start times are divided by this; None in a closed loop.
        thinks: Recorded pauses are kept in a closed loop.
        realtime: Tasks have real-time priority while CPUs are to spare.
    """

    text: str
    loop: str
    factor: float | None = None
    thinks: bool = False
    realtime: bool = False

    @property
    def is_original(self) -> bool:
        """True if time passes as recorded, so that a run can be compared with the recording."""
        return self.factor == 1.0 or self.thinks

    @property
    def has_schedule(self) -> bool:
        """True if calls have due times, so that they can be late."""
        return self.factor is not None or self.thinks

    def words(self) -> list[str]:
        """Return it as options of spoolscope-replay."""
        return ["--pace", self.text, *(["--realtime"] if self.realtime else [])]

    def estimate_s(self, duration_ns: int) -> float | None:
        """Return how long a replay of a recording takes at least; None if that is unknown."""
        factor = 1.0 if self.thinks else self.factor
        return None if factor is None else duration_ns / 1e9 / factor


def parse_pace(text: str, *, realtime: bool = False) -> Pace:
    """Return the pace named on the command line.

    Raises:
        SpoolscopeError: not a pace, or one that has no time to keep with real-time priority.
    """
    pace = _named(text)
    if realtime and not pace.has_schedule:
        raise usage_error(
            f"--realtime keeps calls on time, and {text} has no times",
            remedy="use --pace original, scaled=N or think, or leave out --realtime",
        )
    return replace(pace, realtime=realtime)


def _named(text: str) -> Pace:
    named = {
        "original": Pace("original", "open", 1.0),
        "think": Pace("think", "closed", thinks=True),
        "afap": Pace("afap", "closed"),
    }
    if text in named:
        return named[text]
    kind, _, number = text.partition("=")
    factor = float(number) if re.fullmatch(r"[0-9]{1,7}(\.[0-9]{1,9})?", number) else 0.0
    if kind != "scaled" or not SLOWEST <= factor <= FASTEST:
        raise usage_error(
            f"unknown pace {text!r}",
            remedy="use --pace original, think, afap, or "
            f"scaled=N with N from {SLOWEST} to {FASTEST:,}",
        )
    return Pace(text, "open", factor)
