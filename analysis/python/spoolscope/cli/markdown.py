"""Tables and sentences in Markdown, for a ticket or a wiki."""

import re
from collections.abc import Iterator, Sequence
from typing import Any

from spoolscope.analysis.wording import count, duration, percent, size
from spoolscope.cli.sheets import Row, Sheet, unit_of
from spoolscope.traces.text import shown

MOST_ROWS = 15
MOST_COLUMNS = 12
"""Most columns of a table here; --csv has all."""

MOST_PARTS = 3
"""Most parts of an object in a row, the largest ones."""

# Characters only where they are markup: an underscore inside a word, or "< 1 %", is none.
_SPECIAL = re.compile(
    r"([\\`*\[|$]|~(?=~)|<(?=[A-Za-z/!?])|&(?=[#A-Za-z])|(?<![^\W_])_|_(?![^\W_]))"
)
_BEGINS_BLOCK = re.compile(r"^(#*|\d*|=*)([#+=.)>-])(?=\s|$)")


def document(title: str, sheets: Sequence[Sheet]) -> Iterator[str]:
    """Yield the lines of a document: sentences first, as lists, then tables."""
    yield f"# {escaped(title)}"
    for sheet in sorted(sheets, key=lambda sheet: not _are_sentences(sheet)):
        yield ""
        yield f"## {escaped(_words(sheet.name))}"
        yield ""
        if _are_sentences(sheet):
            yield from _sentences(sheet)
        elif sheet.columns == ["text"]:
            words = ", ".join(str(row["text"]) for row in sheet.rows)
            yield _BEGINS_BLOCK.sub(r"\1\\\2", escaped(words))
        else:
            yield from _table(sheet)


def pipes(names: Sequence[str], rows: Sequence[Sequence[Any]]) -> Iterator[str]:
    """Yield the lines of a table; numbers stand to the right."""
    yield f"| {' | '.join(map(escaped, names))} |"
    right = [any(_is_number(row[at]) for row in rows) for at in range(len(names))]
    yield f"| {' | '.join('---:' if number else '---' for number in right)} |"
    for row in rows:
        yield f"| {' | '.join(escaped(_plain(cell)) for cell in row)} |"


def escaped(text: str) -> str:
    """Return a text on one line, escaped for Markdown and for HTML in it."""
    return _SPECIAL.sub(r"\\\1", shown(text))


def _are_sentences(sheet: Sheet) -> bool:
    return any(str(row.get("text")).endswith(".") for row in sheet.rows)


def _sentences(sheet: Sheet) -> Iterator[str]:
    for row in sheet.rows[:MOST_ROWS]:
        text = _BEGINS_BLOCK.sub(r"\1\\\2", escaped(str(row.get("text"))))
        yield f"- {text}"
    yield from _rest(len(sheet.rows) - MOST_ROWS, "lines")


def _table(sheet: Sheet) -> Iterator[str]:
    are_facts = sheet.columns == ["name", "value", "unit"]
    rows = sheet.rows if are_facts else sheet.rows[:MOST_ROWS]
    shown_rows = [_gathered(row) for row in rows]
    if are_facts:
        shown_rows = [_fact(row) for row in rows if row["value"] is not None]
    names = list(dict.fromkeys(name for row in shown_rows for name in row))
    known = [name for name in names if any(row.get(name) not in (None, "") for row in shown_rows)]
    heads = [_words(name) for name in known[:MOST_COLUMNS]]
    yield from pipes(
        heads, [[row.get(name) for name in known[:MOST_COLUMNS]] for row in shown_rows]
    )
    yield from _rest(len(sheet.rows) - len(rows), "rows")
    yield from _rest(len(known) - MOST_COLUMNS, "columns")


def _fact(row: Row) -> Row:
    return {"name": _words(row["name"]), "value": _said(row["value"], row["unit"])}


def _gathered(row: Row) -> Row:
    """Return a row for people: columns ``x.a``, ``x.b`` become one column x with the largest."""
    made: Row = {}
    parts: dict[str, Row] = {}
    for name, value in row.items():
        of, dot, part = name.partition(".")
        if dot:
            made.setdefault(of, None)
            parts.setdefault(of, {})[part] = value
        else:
            made[name] = _said(value, unit_of(name))
    for of, values in parts.items():
        made[of] = ", ".join(_largest(values))
    return made


def _largest(values: Row) -> Iterator[str]:
    there = {name: value for name, value in values.items() if value not in (None, "", 0)}
    numbers = all(_is_number(value) for value in there.values())
    order = sorted(there, key=lambda name: -there[name]) if numbers else list(there)
    for name in order[:MOST_PARTS]:
        yield f"{_words(name)} {_plain(_said(there[name], unit_of(name)))}"
    if len(order) > MOST_PARTS:
        yield "…"


def _rest(n: int, what: str) -> Iterator[str]:
    if n > 0:
        yield ""
        yield f"… and {n:,} more {what}: --csv has all."


class _Number(str):
    """A formatted number, aligned to the right."""

    __slots__ = ()


def _said(value: Any, unit: str | None) -> Any:
    if value is None or isinstance(value, (str, bool)):
        return value
    if unit == "ns":
        return _Number(duration(value))
    if unit == "bytes":
        return _Number(size(value))
    if unit == "share":
        return _Number(percent(value))
    return value


def _is_number(cell: Any) -> bool:
    return isinstance(cell, _Number) or (
        isinstance(cell, (int, float)) and not isinstance(cell, bool)
    )


def _plain(cell: Any) -> str:
    if cell is None:
        return "-"
    if isinstance(cell, bool):
        return "yes" if cell else "no"
    if isinstance(cell, int):
        return count(cell)
    return f"{cell:.4g}" if isinstance(cell, float) else str(cell)


def _words(name: str) -> str:
    """Return a name without its unit, in words."""
    if name == "ns":
        return "time"
    for end in ("_ns", "_bytes"):
        name = name.removesuffix(end)
    return name.replace("_", " ").replace(".", ": ")
