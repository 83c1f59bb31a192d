"""Names of directories and mailboxes where several spools have one of the same path."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

Place = tuple[int | None, str]
"""Number of a spool, and a path below it; None stands for a path outside all spools."""


def distinct_names(
    places: Iterable[Place], spools: Sequence[Mapping[str, Any]]
) -> dict[Place, str]:
    """Return the names of places: the paths, with their mounts where several spools have them.

    Args:
        places: The places.
        spools: Those of meta.json.
    """
    known = set(places)
    n = Counter(path for _, path in known)
    return {
        (spool, path): path if n[path] == 1 or spool is None else _absolute(spools, spool, path)
        for spool, path in known
    }


def _absolute(spools: Sequence[Mapping[str, Any]], number: int, path: str) -> str:
    mount = str(spools[number]["mount"]) if number < len(spools) else f"spool {number}"
    return f"{mount.rstrip('/')}/{path}".rstrip("/") or "/"
