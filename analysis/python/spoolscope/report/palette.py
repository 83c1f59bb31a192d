"""The colours of a report: for causes from their definitions, and for candidates."""

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

PART_INKS: dict[str, Ink] = {
    "previous_commit": CAUSE_INKS["journal_commit"],
    "handles": CAUSE_INKS["txn_lock"],
    "batching": CAUSE_INKS["scanner"],
    "ordered_data": CAUSE_INKS["ordered_data"],
    "queue": CAUSE_INKS["block_queue"],
    "log_write": CAUSE_INKS["block_device"],
    "cache_flush": CAUSE_INKS["flush"],
    "no_cpu": CAUSE_INKS["runq"],
    "running": CAUSE_INKS["cpu"],
    "other": CAUSE_INKS["unexplained"],
    "no_commit": CAUSE_INKS["process"],
}
"""Inks of a commit's parts: each has the ink of the corresponding cause of calls."""

CANDIDATE_COLOURS = (BLUE, VERMILLION, GREEN, PURPLE, ORANGE, SKY, GREY)
CANDIDATE_DASHES = ("solid", "dash", "dot", "dashdot", "longdash", "solid", "dash")
