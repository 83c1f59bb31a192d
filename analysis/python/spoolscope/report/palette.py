"""The colours of a report: of causes, which have theirs where they are defined; of candidates."""

from spoolscope.analysis.causes import CAUSES
from spoolscope.analysis.inks import (
    BLUE,
    DARK,
    GREEN,
    GREY,
    ORANGE,
    PURPLE,
    SKY,
    VERMILLION,
    YELLOW,
    Ink,
)

__all__ = [
    "BLUE", "CANDIDATE_COLOURS", "CANDIDATE_DASHES", "CAUSE_INKS", "DARK", "GREEN", "GREY",
    "ORANGE", "PURPLE", "SKY", "VERMILLION", "YELLOW", "Ink",
]  # fmt: skip

CAUSE_INKS: dict[str, Ink] = {name: cause.ink for name, cause in CAUSES.items()}

CANDIDATE_COLOURS = (BLUE, VERMILLION, GREEN, PURPLE, ORANGE, SKY, GREY)
CANDIDATE_DASHES = ("solid", "dash", "dot", "dashdot", "longdash", "solid", "dash")
