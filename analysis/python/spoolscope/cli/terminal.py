"""A terminal as a screen: single keys are read, lines drawn, and its state restored at the end."""

import os
import re
import select
import sys
import termios
import tty
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Self

_ESCAPE = b"\x1b"
_PARTS = re.compile(rb"\x1b[\[O][0-9;?]*[@-~]|\x1b|[^\x1b]+")
_NAMED = {
    b"[A": "up",
    b"[B": "down",
    b"[C": "right",
    b"[D": "left",
    b"[5~": "pageup",
    b"[6~": "pagedown",
    b"OA": "up",
    b"OB": "down",
}


def can_be_a_screen() -> bool:
    """Return True if input and output are a terminal that can move the cursor (not "dumb")."""
    dumb = os.environ.get("TERM", "dumb") == "dumb"
    return not dumb and sys.stdin.isatty() and sys.stdout.isatty()


@dataclass(frozen=True)
class Line:
    """One line: its text, without control characters (see ``shown``), and its style."""

    text: str
    style: str = ""


class Terminal:
    """The terminal as a screen until the block ends in any way."""

    def __init__(self) -> None:
        from rich.console import Console

        self._console = Console(highlight=False, markup=False, emoji=False)
        self._screen = self._console.screen()
        self._drawn: tuple[Sequence[Line], tuple[int, int]] | None = None

    def __enter__(self) -> Self:
        self._before = termios.tcgetattr(sys.stdin)
        tty.setcbreak(sys.stdin)
        self._screen.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._screen.__exit__(None, None, None)
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, self._before)

    @property
    def size(self) -> tuple[int, int]:
        """Columns and lines."""
        size = os.get_terminal_size(sys.stdout.fileno())
        return max(20, size.columns), max(5, size.lines)

    def draw(self, lines: Sequence[Line]) -> None:
        """Show lines from the top; nothing is written if they have not changed."""
        from rich.console import ConsoleDimensions
        from rich.text import Text

        size = self.size
        if self._drawn == (lines, size):
            return
        self._drawn = (lines, size)
        # Else it would be that of COLUMNS and LINES, which do not follow the terminal.
        self._console.size = ConsoleDimensions(*size)
        parts = [Text(line.text, style=line.style) for line in lines]
        self._screen.update(Text("\n").join(parts))

    def pressed(self) -> Iterator[str]:
        """Yield the keys pressed since the last time: characters, or names as "up"."""
        while select.select([sys.stdin], [], [], 0)[0]:
            pressed = os.read(sys.stdin.fileno(), 64)
            if not pressed:
                return
            yield from _named(pressed)


def _named(pressed: bytes) -> Iterator[str]:
    for part in _PARTS.findall(pressed):
        if part.startswith(_ESCAPE) and len(part) > 1:
            if part[1:] in _NAMED:  # other keys are ignored
                yield _NAMED[part[1:]]
        else:
            yield from part.decode(errors="ignore")
