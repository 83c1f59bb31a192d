"""The screen of top: its lines and the effects of keys, independent of a terminal."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from rich.cells import cell_len, set_cell_size

from spoolscope.analysis.top import Interval
from spoolscope.analysis.wording import count, duration
from spoolscope.cli.terminal import Line
from spoolscope.cli.top_views import VIEWS, Row, View
from spoolscope.traces.text import shown

KEYS = "p m f c j:table  s:sort r:turn  /:filter  space:pause  k:keep  q:quit"
_HEADS = 3
_SPACE, _ENTER, _ESCAPE, _ERASE = " ", ("\r", "\n"), "\x1b", ("\x7f", "\b")


@dataclass
class TopScreen:
    """The current state of the screen.

    Args:
        keep: Function that keeps the trace of the shown interval and returns a message.
        note: Text beside the heading: names are real or hidden.

    Attributes:
        found: The interval that is shown; None before the first one.
        over: True if the user has asked to leave.
    """

    keep: Callable[[], str]
    note: str = ""
    found: Interval | None = None
    over: bool = False
    paused: bool = False
    message: str = "attaching"
    _view: int = 0
    _sorted: dict[str, str] = field(default_factory=dict)
    _turned: bool = False
    _filter: str = ""
    _typing: bool = False
    _first: int = 0
    _rows_shown: int = 1

    @property
    def view(self) -> View:
        """The table that is shown."""
        return VIEWS[self._view]

    def show(self, found: Interval) -> None:
        """Show an interval, unless the screen is paused."""
        if not self.paused:
            self.found, self.message = found, ""

    def press(self, key: str) -> None:
        """Carry out a key: a character, or a name like "up"."""
        if self._typing:
            self._type(key)
            return
        views = {view.key: number for number, view in enumerate(VIEWS)}
        steps = {"up": -1, "down": 1, "pageup": -self._rows_shown, "pagedown": self._rows_shown}
        if key in views:
            self._view, self._first, self._turned = views[key], 0, False
        elif key in ("\t", "right", "left"):
            step = -1 if key == "left" else 1
            self._view, self._first = (self._view + step) % len(VIEWS), 0
            self._turned = False
        elif key in steps:
            self._first = max(0, self._first + steps[key])
        elif key == "s":
            titles = [column.title for column in self.view.columns]
            at = titles.index(self._sorted_by()) + 1
            self._sorted[self.view.key] = titles[at % len(titles)]
        elif key == "r":
            self._turned = not self._turned
        elif key == "/":
            self._typing, self._filter, self._first = True, "", 0
        elif key == _ESCAPE:
            self._filter = ""
        elif key == _SPACE:
            self.paused = not self.paused
        elif key == "k":
            self.message = self.keep()
        elif key == "q":
            self.over = True

    def _type(self, key: str) -> None:
        if key in _ENTER:
            self._typing = False
        elif key == _ESCAPE:
            self._typing, self._filter = False, ""
        elif key in _ERASE:
            self._filter = self._filter[:-1]
        elif len(key) == 1 and key.isprintable():
            self._filter += key

    def _sorted_by(self) -> str:
        return self._sorted.get(self.view.key, self.view.sorted_by)

    def lines(self, width: int, height: int) -> list[Line]:
        """Return the lines of the screen, none beyond that size."""
        rows = self._rows()
        self._rows_shown = max(1, height - _HEADS - 1)
        self._first = min(self._first, max(0, len(rows) - self._rows_shown))
        seen = rows[self._first : self._first + self._rows_shown]
        titles = [
            c.title + ("*" if c.title == self._sorted_by() else "") for c in self.view.columns
        ]
        table = [
            Line(self._joined([c.text(row) for c in self.view.columns], width)) for row in seen
        ]
        empty = [Line("")] * (self._rows_shown - len(table))
        lines = [
            Line(self._heading(), "bold"),
            Line(self._tables(len(rows), len(seen))),
            Line(self._joined(titles, width), "reverse"),
            *table,
            *empty,
            self._footer(),
        ]
        fitted = [Line(set_cell_size(shown(line.text), width), line.style) for line in lines]
        return [*fitted[: height - 1], fitted[-1]][:height]

    def _rows(self) -> list[Row]:
        if self.found is None:
            return []
        column = self.view.column(self._sorted_by())
        rows = sorted(self.view.rows(self.found), key=column.rank, reverse=self._turned)
        wanted = self._filter.lower()
        if not wanted:
            return rows
        return [r for r in rows if any(wanted in c.text(r).lower() for c in self.view.columns)]

    def _joined(self, texts: list[str], width: int) -> str:
        """Join the columns of a row; the one without a width gets the remaining cells."""
        taken = sum(abs(column.width) + 1 for column in self.view.columns if column.width)
        rest = max(8, width - taken)
        cells = []
        for column, text in zip(self.view.columns, texts, strict=True):
            size = abs(column.width) or rest
            left = column.width <= 0 or column.text is self.view.columns[-1].text
            cells.append(_fitted(text, size, left=left, end=not column.width))
        return " ".join(cells)

    def _heading(self) -> str:
        if self.found is None:
            return f"spoolscope top: {self.message}"
        clock = time.strftime("%H:%M:%S", time.localtime(self.found.start_ns / 1e9))
        calls = sum(process.calls for process in self.found.processes)
        lost = f", LOST {count(self.found.lost)}" if self.found.lost else ""
        paused = "  PAUSED" if self.paused else ""
        return (
            f"{clock}, {duration(self.found.duration_ns)}: {count(calls)} calls, "
            f"{count(self.found.commits)} commits{lost}{paused}  {self.note}"
        )

    def _tables(self, rows: int, seen: int) -> str:
        names = (f"[{v.title}]" if v is self.view else f" {v.title} " for v in VIEWS)
        part = f"  {self._first + 1}-{self._first + seen} of {rows}" if seen else "  none"
        return "".join(names) + (part if self.found else "")

    def _footer(self) -> Line:
        if self._typing:
            return Line(f"Filter: {self._filter}_", "bold")
        if self.message and self.found:
            return Line(self.message, "bold")
        if self._filter:
            return Line(f"Only rows with {self._filter!r}; Esc: all of them", "bold")
        return Line(KEYS, "dim")


def _fitted(text: str, size: int, *, left: bool, end: bool) -> str:
    """Return a text in that many cells; a longer one is cut at its end, or at its begin."""
    text = shown(text)
    if cell_len(text) > size:
        text = f"…{text[1 - size :]}" if end else f"{set_cell_size(text, size - 1)}…"
    return set_cell_size(text, size) if left else text.rjust(size)
