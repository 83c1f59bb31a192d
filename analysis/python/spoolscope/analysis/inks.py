"""Colours and patterns of causes, the same in every figure and table.

Hues are Okabe and Ito's, which remain apart for the colour-blind. A hue is a group of causes
(journal, device, lock, read, machine); the pattern distinguishes the members of a group.
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


PLAIN = Ink(GREY)
