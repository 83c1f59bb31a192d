"""Progress of long work: phases of roughly known length, and the share of all that is done."""

from collections.abc import Callable, Mapping

Progress = Callable[[str, float | None], None]
"""Called with what is being done and the share of everything that is done, None if unknown."""


def unseen(_what: str, _fraction: float | None) -> None:
    """Show nothing."""


class Phases:
    """Phases one after the other that make up a part of some work.

    Calling it with the name of a phase, and the share of that phase that is done, reports both.
    """

    def __init__(
        self,
        report: Progress,
        lengths: Mapping[str, float],
        *,
        part: tuple[float, float] = (0.0, 1.0),
        prefix: str = "",
    ) -> None:
        """Prepare to report.

        Args:
            report: What to call.
            lengths: Length of each phase in order, in any unit: only their ratios count.
            part: From which share of all the work to which these phases lead.
            prefix: What the name of every phase is shown after.
        """
        self._report, self._lengths, self._prefix = report, dict(lengths), prefix
        self._from, to = part
        self._width = to - self._from

    def __call__(self, phase: str, done: float = 0.0) -> None:
        """Report a phase of which a share is done."""
        self._report(self._prefix + phase, self._at(phase, done))

    def within(self, phase: str, lengths: Mapping[str, float], prefix: str = "") -> "Phases":
        """Return phases that make up one of these; ``prefix`` comes before their names, too."""
        part = self._at(phase, 0.0), self._at(phase, 1.0)
        return Phases(self._report, lengths, part=part, prefix=self._prefix + prefix)

    def sub(self, phase: str) -> Progress:
        """Return what reports the share that is done of one of these phases."""
        return lambda what, done: self._report(self._prefix + what, self._at(phase, done or 0.0))

    def _at(self, phase: str, done: float) -> float:
        names = list(self._lengths)
        before = sum(self._lengths[name] for name in names[: names.index(phase)])
        whole = sum(self._lengths.values()) or 1.0
        share = (before + self._lengths[phase] * min(max(done, 0.0), 1.0)) / whole
        return self._from + self._width * share
