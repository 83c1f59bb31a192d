"""A table in plain text that fits a terminal."""

from collections.abc import Sequence
from textwrap import wrap

from spoolscope.analysis.wording import fitting
from spoolscope.traces.text import shown

WIDTH = 80
"""Columns of the narrowest supported terminal."""
GAP = 2
LEAST = 6
"""Least number of characters of a cell that is cut."""

Cell = str | int | float | bool | None


def grid(names: Sequence[str], rows: Sequence[Sequence[Cell]]) -> list[str]:
    """Return the lines of a table, no wider than ``WIDTH``: numbers to the right, text to the left.

    The widest texts are cut first; numbers are never cut. A table that is still too wide becomes
    one block of lines for each row.
    """
    right = [_is_numeric([row[at] for row in rows]) for at in range(len(names))]
    texts = [[_text(cell) for cell in row] for row in rows]
    heads = [shown(name) for name in names]
    wants = [max(map(len, column)) for column in zip(heads, *texts, strict=True)]
    keeps = [
        width if number else min(width, LEAST) for width, number in zip(wants, right, strict=True)
    ]
    widths = _shared(wants, keeps, WIDTH - GAP * (len(names) - 1))
    if widths is None:
        return blocks(heads, texts)
    return [_line(cells, widths, right) for cells in (heads, *texts)]


def blocks(names: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Return each row as lines of name and value, with an empty line between rows."""
    width = min(max(map(len, names), default=0), WIDTH // 2)
    lines: list[str] = []
    for row in rows:
        lines += [""] if lines else []
        for name, text in zip(names, row, strict=True):
            parts = wrap(text, WIDTH - width - GAP) or [""]
            heads = [fitting(name, width), *[""] * (len(parts) - 1)]
            lines += [
                f"{head:<{width}}{'':{GAP}}{part}".rstrip()
                for head, part in zip(heads, parts, strict=True)
            ]
    return lines


def _shared(wants: list[int], keeps: list[int], room: int) -> list[int] | None:
    """Return widths that fit the room, the widest cut first; None if they cannot."""
    if sum(keeps) > room:
        return None
    widths = list(wants)
    while (over := sum(widths) - room) > 0:
        cut = [at for at, width in enumerate(widths) if width > keeps[at]]
        widest = max(cut, key=lambda at: widths[at])
        rest = [widths[at] for at in cut if widths[at] < widths[widest]]
        widths[widest] -= min(over, max(1, widths[widest] - max([keeps[widest], *rest])))
    return widths


def _line(cells: Sequence[str], widths: Sequence[int], right: Sequence[bool]) -> str:
    placed = [
        f"{cell:>{width}}" if number else f"{fitting(cell, width):<{width}}"
        for cell, width, number in zip(cells, widths, right, strict=True)
    ]
    return (" " * GAP).join(placed).rstrip()


def _is_numeric(cells: Sequence[Cell]) -> bool:
    known = [cell for cell in cells if cell is not None]
    return bool(known) and all(
        isinstance(cell, (int, float)) and not isinstance(cell, bool) for cell in known
    )


def _text(cell: Cell) -> str:
    if cell is None:
        return "-"
    if isinstance(cell, bool):
        return "yes" if cell else "no"
    if isinstance(cell, float):
        return f"{cell:.6g}"
    return shown(cell) if isinstance(cell, str) else str(cell)
