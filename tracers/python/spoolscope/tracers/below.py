"""Mounts below the spools, by mount namespace, and where names lead because of them."""

from collections.abc import Iterator
from typing import Any, NamedTuple


class Mounted(NamedTuple):
    """A mount.

    Attributes:
        place: Its directory, by the absolute name that leads there.
        source: The directory of a spool that it shows (mount --bind); None if not of a spool.
    """

    place: bytes
    source: bytes | None

    def holds(self, path: bytes) -> bool:
        """Return whether a name leads into it, if no other mount hides it."""
        return path == self.place or path.startswith(self.place + b"/")


class Below:
    """All mounts below the spools, followed from the start by the calls that mount and unmount.

    The inode of ns/mnt identifies a namespace; the recorder's own is 0, as is an unknown one.

    Attributes:
        any: Whether there was ever a mount; if not, lookups need not be made.
    """

    def __init__(self, meta: dict[str, Any]) -> None:
        self._own = 0
        self._tables: dict[int, list[Mounted]] = {0: []}
        for mount in meta.get("mounted_below", []):
            number = 0 if mount["own"] else int(mount["mount_ns"])
            self._own = int(mount["mount_ns"]) if mount["own"] else self._own
            self._tables[number] = [
                Mounted(place.encode(), source.encode() if source is not None else None)
                for place, source in mount["places"]
            ]
        self._lasting = frozenset(self._tables)
        self.any = any(self._tables.values())

    def copy(self) -> "Below":
        """Return a copy of the present state."""
        other = Below({})
        other._own, other._lasting, other.any = self._own, self._lasting, self.any
        other._tables = {number: list(table) for number, table in self._tables.items()}
        return other

    def number(self, mount: int) -> int:
        """Return the number of a namespace by its inode."""
        return 0 if mount == self._own else mount

    def begin(self, number: int, before: int, *, anew: bool) -> None:
        """Note that a process changed its namespace; a new namespace is a copy of the old one.

        Args:
            number: The namespace in which it is now.
            before: The one in which it was.
            anew: No other process is in it, so it may be new with a reused number.
        """
        if number not in self._tables or (anew and number not in self._lasting):
            self._tables[number] = list(self._tables[before])

    def where(self, number: int, path: bytes) -> bytes | None:
        """Return the name, below a spool or outside all, that a name leads to.

        It is None if it leads to another filesystem.
        """
        # The last mount that holds it is on top.
        for one in reversed(self._tables[number]):
            if one.holds(path):
                return None if one.source is None else one.source + path[len(one.place) :]
        return path

    def mounted(self, number: int, place: bytes, source: bytes | None) -> None:
        """Add a mount; ``source``: the directory of a spool that it shows."""
        self._tables[number].append(Mounted(place, source))
        self.any = True

    def repeated(self, number: int, place: bytes, source: bytes) -> None:
        """Repeat the mounts below a directory below another one (mount --rbind)."""
        for one in list(self._held(number, source)):
            if one.place != source:
                self.mounted(number, place + one.place[len(source) :], one.source)

    def moved(self, number: int, place: bytes, to: bytes) -> None:
        """Move a mount to another place, with those on it."""
        taken = self._taken(number, place)
        # An unknown mount was made by a call that is not in the trace, most likely of another
        # filesystem.
        for one in taken or [Mounted(place, None)]:
            self.mounted(number, to + one.place[len(place) :], one.source)

    def unmounted(self, number: int, place: bytes) -> None:
        """Remove the last mount on a directory, with those on it."""
        self._taken(number, place)

    def renamed(self, old: bytes, new: bytes) -> None:
        """Rename a directory that has mounts below it or that a mount shows."""

        def now(path: bytes) -> bytes:
            inside = path == old or path.startswith(old + b"/")
            return new + path[len(old) :] if inside else path

        for number, table in self._tables.items():
            self._tables[number] = [
                Mounted(now(one.place), now(one.source) if one.source is not None else None)
                for one in table
            ]

    def _held(self, number: int, place: bytes) -> Iterator[Mounted]:
        top = Mounted(place, None)
        return (one for one in self._tables[number] if top.holds(one.place))

    def _taken(self, number: int, place: bytes) -> list[Mounted]:
        """Remove a mount and the later ones below it, and return them."""
        table = self._tables[number]
        first = max((at for at, one in enumerate(table) if one.place == place), default=None)
        if first is None:
            return []
        gone = [one for one in self._held(number, place) if one in table[first:]]
        self._tables[number] = table[:first] + [one for one in table[first:] if one not in gone]
        return gone
