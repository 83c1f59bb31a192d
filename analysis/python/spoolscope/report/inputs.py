"""The inputs of a report, and the interface of its sections."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from spoolscope.analysis.compare import Comparison
from spoolscope.analysis.study import Study
from spoolscope.analysis.wording import count, duration, percent
from spoolscope.report.page import Section

Studies = Mapping[str, Study]
"""Studied traces by the name shown: the candidates that were recorded, or the one trace."""


@dataclass(frozen=True)
class Inputs:
    """The inputs of a page.

    Attributes:
        studies: Studied traces by the name shown.
        found: The comparison of a replay; None on the page of a single trace.
        chosen: Candidates shown in detail, the best first.
    """

    studies: Studies
    found: Comparison | None = None
    chosen: Sequence[str] = ()

    @property
    def comparison(self) -> Comparison:
        """The comparison, for sections on replays only."""
        if self.found is None:
            raise ValueError("the page of a single trace compares nothing")
        return self.found

    @property
    def of_one_round(self) -> str:
        """Sentence for what shows the first round alone; empty if there is no other."""
        if self.found is None:
            return ""
        rounds = max(c.rounds for c in self.found.candidates.values())
        alone = f"The first of {rounds} rounds alone; the verdict and its figures are of all."
        return "" if rounds == 1 else alone

    @property
    def method(self) -> str:
        """Sentences for a caption of times by cause: their source, and what is not drawn."""
        explained = [study.explanation for study in self.studies.values()]
        between = sum(one.between_programs_ns for one in explained if one.causes_recorded)
        if not between:
            return self.source
        waited = f"{duration(between)} waiting for other programs: file locks, vfork."
        return f"{self.source} Not drawn: {waited}"

    @property
    def source(self) -> str:
        """Sentences for a caption of whole calls: the source of the traces' numbers."""
        explained = {name: study.explanation for name, study in self.studies.items()}
        said = [f"{name}: {count(one.n_calls)} calls" for name, one in explained.items()]
        named = min(one.named_share for one in explained.values())
        lost = sum(int(one.meta.get("lost", 0)) for one in explained.values())
        text = f"{self.of_one_round} {'; '.join(said)}. "
        if not all(one.causes_recorded for one in explained.values()):
            return f"{text}Only the length of each call was recorded, not its causes.".strip()
        text += "Every call is split exactly, nothing is sampled; "
        text += f"{percent(named, 2)} of blocked time has a named cause"
        text += f"; {count(lost)} lost records are missing." if lost else "; no record was lost."
        return text.strip()


class SectionMaker(Protocol):
    """A section of the report; each module of ``report/sections`` is one."""

    @property
    def anchor(self) -> str:
        """The id of the section in the page; no two on one page have the same."""

    def applies(self, page: Inputs) -> bool:
        """Return True if the page has something to show here."""

    def make(self, page: Inputs) -> Section:
        """Lay out the section; called only if it applies."""
