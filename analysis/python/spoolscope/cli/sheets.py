"""The facts that a verb prints, laid out as tables, for --csv and --markdown.

The source is the object that --json prints, so no verb lays out such tables itself. A list of
objects is a table with a row for each; an object of objects is one, too, with their keys as names;
single facts stand together in a table of names, values and units.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

FACTS = "facts"
IN_NS = ("causes", "parts", "waits", "by_cause", "times")
"""Objects whose values are times in ns, and whose keys are names."""
UNITS = {"_ns": "ns", "_bytes": "bytes", "_ppm": "1e-6", "_s": "s"}
"""Units by the end of a name."""

Row = dict[str, Any]


@dataclass(frozen=True)
class Sheet:
    """One table: its name, and rows of columns by name; a row may lack some."""

    name: str
    rows: list[Row]

    @property
    def columns(self) -> list[str]:
        """The names of its columns, in the order in which they come."""
        return list(dict.fromkeys(name for row in self.rows for name in row))


def sheets(value: Mapping[str, Any] | Sequence[Any]) -> list[Sheet]:
    """Return the tables of an object or a list, its single facts first; none is empty."""
    facts: list[Row] = []
    if not isinstance(value, Mapping):
        return [Sheet(FACTS, list(_of_list(value)))]
    found = [sheet for sheet in _within("", value, facts) if sheet.rows]
    return [Sheet(FACTS, facts), *found] if facts else found


def unit_of(name: str) -> str:
    """Return the unit at the end of a name, or ""."""
    last = name.rpartition(".")[2]
    if last == "ns":
        return "ns"
    return next((unit for end, unit in UNITS.items() if last.endswith(end)), "")


def _within(prefix: str, value: Mapping[str, Any], facts: list[Row]) -> Iterator[Sheet]:
    for key, item in value.items():
        name = f"{prefix}{key}"
        if isinstance(item, Mapping):
            yield from _of_object(name, item, facts)
        elif _is_list(item):
            yield Sheet(name, list(_of_list(item)))
        else:
            facts.append({"name": name, "value": item, "unit": unit_of(name)})


def _of_object(name: str, value: Mapping[str, Any], facts: list[Row]) -> Iterator[Sheet]:
    if value and all(isinstance(item, Mapping) for item in value.values()):
        yield Sheet(name, [{"name": key, **_flat(item, name)} for key, item in value.items()])
    elif any(_is_nested(item) for item in value.values()):
        yield from _within(f"{name}.", value, facts)
    else:
        unit = "ns" if name.rpartition(".")[2] in IN_NS else ""
        rows = [
            {"name": key, "value": item, "unit": unit or unit_of(key)}
            for key, item in value.items()
        ]
        yield Sheet(name, rows)


def _of_list(items: Sequence[Any]) -> Iterator[Row]:
    """Yield a row for each item; items of a list in a list are rows, numbered from 1."""
    for number, item in enumerate(items, 1):
        if isinstance(item, Mapping):
            yield _flat(item)
        elif _is_list(item):
            for place, inner in enumerate(_of_list(item), 1):
                yield {"number": number, "place": place, **inner}
        else:
            yield {"text": item}


def _flat(value: Mapping[str, Any], of: str = "") -> Row:
    """Return an object as one row: objects in it as columns, lists in it as one text."""
    row: Row = {}
    in_ns = of.rpartition(".")[2] in IN_NS
    for key, item in value.items():
        if isinstance(item, Mapping):
            end = "_ns" if key in IN_NS else ""
            row |= {f"{key}.{inner}{end}": cell for inner, cell in _flat(item).items()}
        elif _is_list(item):
            plain = not any(_is_nested(inner) for inner in item)
            row[key] = "; ".join(map(str, item)) if plain else json.dumps(item, default=str)
        else:
            row[f"{key}_ns" if in_ns else key] = item
    return row


def _is_list(item: Any) -> bool:
    return isinstance(item, Sequence) and not isinstance(item, str)


def _is_nested(item: Any) -> bool:
    return isinstance(item, Mapping) or _is_list(item)
