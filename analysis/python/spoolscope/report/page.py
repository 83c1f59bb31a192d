"""The parts of a report, which the template turns into HTML."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from spoolscope.analysis.causes import CAUSES
from spoolscope.analysis.wording import duration, percent
from spoolscope.report.falls import Falls
from spoolscope.report.figures.base import Exact, Figure, Table
from spoolscope.report.palette import CAUSE_INKS


@dataclass(frozen=True)
class Split:
    """A small bar of causes inside a table cell; parts are (label, css, width, text)."""

    parts: list[tuple[str, str, float, str]]

    @classmethod
    def of(cls, causes: Mapping[str, float]) -> "Split":
        """Make the bar of {cause: ns}."""
        total = max(sum(causes.values()), 1)
        return cls(
            [
                (
                    CAUSES[cause].label,
                    CAUSE_INKS[cause].css,
                    100 * ns / total,
                    f"{CAUSES[cause].label} {duration(ns)} ({percent(ns / total)})",
                )
                for cause, ns in causes.items()
            ]
        )

    @property
    def text(self) -> str:
        """The same in words, the largest part first, at most three."""
        largest = sorted(self.parts, key=lambda part: -part[2])[:3]
        return ", ".join(f"{label} {width:.0f} %" for label, _, width, _ in largest if width >= 1)


@dataclass(frozen=True)
class Ranged:
    """A number in a table cell, and below it its range."""

    text: str
    range: str


@dataclass(frozen=True)
class TableBlock:
    """A table of the page; a folded one opens on a click."""

    title: str
    heads: Sequence[str]
    rows: Sequence[Sequence[str | Exact | Split | Ranged]]
    caption: str
    folded: bool = False


@dataclass(frozen=True)
class Section:
    """A section: anchor, name in the navigation, title, introduction, figures and tables."""

    key: str
    name: str
    title: str
    intro: str
    blocks: Sequence[Figure | TableBlock | Falls]


@dataclass(frozen=True)
class Fact:
    """A line of the box beside the verdict; ``good`` colours it, None is neutral."""

    label: str
    value: str
    good: bool | None = None


@dataclass(frozen=True)
class Page:
    """A whole report.

    Attributes:
        title: Title of the browser tab; eyebrow is the small line above the headline.
        badge: One word for how certain the headline is.
        headline: The answer.
        sure: Sentences on how certain it is.
        reasons: Sentences on why; problems weaken the answer.
        next_command: Command for a more certain answer, or for the next step.
        facts_title: Title of the box beside it, with the facts.
        hero: The figure of the first screen, None if there is nothing to draw.
        sections: The sections below the first screen.
    """

    title: str
    eyebrow: str
    badge: str
    headline: str
    sure: str
    reasons: Sequence[str]
    problems: Sequence[str]
    next_command: str | None
    facts_title: str
    facts: Sequence[Fact]
    hero: Figure | None
    sections: Sequence[Section]
    footer: str = ""
    notes: Sequence[str] = field(default_factory=tuple)

    @property
    def figures(self) -> list[Figure]:
        """Every figure, in order."""
        blocks = [block for section in self.sections for block in section.blocks]
        found = [block for block in blocks if isinstance(block, Figure)]
        return [self.hero, *found] if self.hero is not None else found


__all__ = [
    "Exact",
    "Fact",
    "Falls",
    "Figure",
    "Page",
    "Ranged",
    "Section",
    "Split",
    "Table",
    "TableBlock",
]
