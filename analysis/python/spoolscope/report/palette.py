"""One fixed colour and pattern per cause, the same in every figure and table.

Hues are Okabe and Ito's, which remain apart for the colour-blind. A hue is a group of causes
(journal, device, lock, read, machine); the pattern tells members of a group apart.
"""

from dataclasses import dataclass

VERMILLION, ORANGE, YELLOW = "#D55E00", "#E69F00", "#F0E442"
BLUE, SKY, GREEN, PURPLE = "#0072B2", "#56B4E9", "#009E73", "#CC79A7"
GREY, DARK = "#999999", "#5A5A5A"

_ANGLES = {"/": (135,), "\\": (45,), "|": (90,), "-": (0,), "x": (45, 135)}


@dataclass(frozen=True)
class Ink:
    """A colour and a Plotly pattern shape ("" is solid)."""

    colour: str
    pattern: str = ""

    @property
    def css(self) -> str:
        """The same ink as a CSS background."""
        if not self.pattern:
            return self.colour
        stripe = "transparent 0 4px, rgba(255,255,255,.75) 4px 6px"
        stripes = (f"repeating-linear-gradient({a}deg, {stripe})" for a in _ANGLES[self.pattern])
        return f"{', '.join(stripes)}, {self.colour}"


CAUSE_INKS: dict[str, Ink] = {
    "journal_commit": Ink(VERMILLION),
    "log_space": Ink(VERMILLION, "/"),
    "txn_lock": Ink(VERMILLION, "|"),
    "shadow": Ink(VERMILLION, "\\"),
    "ordered_data": Ink(ORANGE, "/"),
    "writeback": Ink(ORANGE),
    "flush": Ink(YELLOW),
    "dir_lock": Ink(PURPLE),
    "lookup_io": Ink(SKY),
    "readdir_io": Ink(SKY, "/"),
    "inode_io": Ink(SKY, "|"),
    "alloc_io": Ink(SKY, "\\"),
    "quota": Ink(PURPLE, "x"),
    "block_queue": Ink(BLUE, "/"),
    "block_device": Ink(BLUE),
    "device_layer": Ink(BLUE, "-"),
    "io_throttle": Ink(BLUE, "|"),
    "dirty_throttle": Ink(BLUE, "\\"),
    "server": Ink(BLUE, "x"),
    "frozen": Ink(PURPLE, "-"),
    "scanner": Ink(PURPLE, "\\"),
    "file_lock": Ink(PURPLE, "|"),
    "inode_lock": Ink(PURPLE, "/"),
    "process": Ink(GREY, "\\"),
    "memory": Ink(GREY, "|"),
    "runq": Ink(GREY),
    "preempt": Ink(GREY, "/"),
    "steal": Ink(GREEN, "/"),
    "cpu": Ink(GREEN),
    "unexplained": Ink(DARK, "|"),
}

CANDIDATE_COLOURS = (BLUE, VERMILLION, GREEN, PURPLE, ORANGE, SKY, GREY)
CANDIDATE_DASHES = ("solid", "dash", "dot", "dashdot", "longdash", "solid", "dash")
