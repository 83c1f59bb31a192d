"""Other names of the spools."""

from typing import Any


class Aliases:
    """Other names of the spools: bind mounts and symbolic links, as the recorder found them."""

    def __init__(self, meta: dict[str, Any]) -> None:
        pairs = ((a.encode(), t.encode()) for a, t in meta.get("aliases", {}).items())
        self._pairs: list[tuple[bytes, bytes]] = sorted(pairs, key=lambda pair: -len(pair[0]))

    def real(self, path: bytes) -> bytes:
        """Return a path as it reads below the spool's mount point."""
        for alias, target in self._pairs:
            if path == alias or path.startswith(alias + b"/"):
                return target + path[len(alias) :]
        return path
