"""Other names of the spools."""

import os
from typing import Any


class Aliases:
    """Other names of the spools: bind mounts and symbolic links, as the recorder found them.

    Attributes:
        any: Whether there are any.
    """

    def __init__(self, meta: dict[str, Any]) -> None:
        pairs: dict[str, str] = meta.get("aliases", {})
        self._real = {alias.encode(): target.encode() for alias, target in pairs.items()}
        self._depths = sorted({alias.count(b"/") for alias in self._real}, reverse=True)
        self.any = bool(self._real)

    def outside(self, tops: tuple[bytes, ...]) -> "Aliases":
        """Return the aliases that are not below the given directories, which end with a slash."""
        kept = (name for name in self._real if not name.startswith(tops))
        return Aliases({"aliases": {os.fsdecode(n): os.fsdecode(self._real[n]) for n in kept}})

    def real(self, path: bytes) -> bytes:
        """Return a path with an alias at its start replaced; the longest alias counts."""
        if not self.any:
            return path
        ends = [i for i, byte in enumerate(path) if byte == b"/"[0]]
        ends.append(len(path))
        for depth in self._depths:
            if depth < len(ends) and (target := self._real.get(path[: ends[depth]])) is not None:
                return target + path[ends[depth] :]
        return path
