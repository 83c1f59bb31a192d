"""TOML tables whose blocks take keys that they lack from another block."""

from collections.abc import Mapping
from typing import Any

LIKE = "like"


def inherited(tables: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return every block, completed from the block that its key ``like`` names.

    Raises:
        ValueError: the named block is missing, or blocks name one another in a circle.
    """
    return {name: _whole(name, tables, ()) for name in tables}


def _whole(
    name: str, tables: Mapping[str, Mapping[str, Any]], above: tuple[str, ...]
) -> dict[str, Any]:
    if name in above:
        raise ValueError(f"[{above[0]}] is like itself: {' -> '.join((*above, name))}")
    if name not in tables:
        raise ValueError(f"[{above[-1]}] is like {name!r}, which is not there")
    own = tables[name]
    base = _whole(own[LIKE], tables, (*above, name)) if LIKE in own else {}
    return {**base, **{key: value for key, value in own.items() if key != LIKE}}
