"""Progress of long work: phases of roughly known length, and the share of work that is done."""

from collections.abc import Callable, Mapping

Progress = Callable[[str, float | None], None]
"""Called with the phase and the share of the whole work that is done, None if unknown."""


def unseen(_what: str, _fraction: float | None) -> None:
    """Ignore progress."""


class Phases:
    """Consecutive phases of some work, or of a part of it.

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
            report: Function to call.
            lengths: Length of each phase in order, in any unit: only their ratios count.
            part: Shares of the whole work at which these phases begin and end.
            prefix: Text before the name of every phase.
        """
        self._report, self._lengths, self._prefix = report, dict(lengths), prefix
        self._from, to = part
        self._width = to - self._from

    def __call__(self, phase: str, done: float = 0.0) -> None:
        """Report a phase and the share of it that is done."""
        self._report(self._prefix + phase, self._at(phase, done))

    def within(self, phase: str, lengths: Mapping[str, float], prefix: str = "") -> "Phases":
        """Return the phases that one of these consists of; ``prefix`` is put before their names."""
        part = self._at(phase, 0.0), self._at(phase, 1.0)
        return Phases(self._report, lengths, part=part, prefix=self._prefix + prefix)

    def sub(self, phase: str) -> Progress:
        """Return a function that reports the share of one of these phases that is done."""
        return lambda what, done: self._report(self._prefix + what, self._at(phase, done or 0.0))

    def _at(self, phase: str, done: float) -> float:
        names = list(self._lengths)
        before = sum(self._lengths[name] for name in names[: names.index(phase)])
        whole = sum(self._lengths.values()) or 1.0
        share = (before + self._lengths[phase] * min(max(done, 0.0), 1.0)) / whole
        return self._from + self._width * share
