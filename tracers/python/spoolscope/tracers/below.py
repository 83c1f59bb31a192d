"""What is mounted below the spools, by mount namespace: where names lead meanwhile."""

from collections.abc import Iterator
from typing import Any, NamedTuple


class Mounted(NamedTuple):
    """A mount.

    Attributes:
        place: Its directory, by the absolute name that leads there.
        source: The directory of a spool that it shows (mount --bind); None: it is no spool's.
    """

    place: bytes
    source: bytes | None

    def holds(self, path: bytes) -> bool:
        """Tell whether a name leads into it, if nothing else is in the way."""
        return path == self.place or path.startswith(self.place + b"/")


class Below:
    """All of them, followed from the start by the calls that mount and unmount.

    Namespaces are told apart by the inode of ns/mnt; the recorder's own is 0, as is an unknown one.

    Attributes:
        any: Whether there was ever one; if not nothing has to be asked.
    """

    def __init__(self, meta: dict[str, Any]) -> None:
        self._own = 0
        self._tables: dict[int, list[Mounted]] = {0: []}
        for told in meta.get("mounted_below", []):
            number = 0 if told["own"] else int(told["mount_ns"])
            self._own = int(told["mount_ns"]) if told["own"] else self._own
            self._tables[number] = [
                Mounted(place.encode(), source.encode() if source is not None else None)
                for place, source in told["places"]
            ]
        self._lasting = frozenset(self._tables)
        self.any = any(self._tables.values())

    def copy(self) -> "Below":
        """Return them as they are now."""
        other = Below({})
        other._own, other._lasting, other.any = self._own, self._lasting, self.any
        other._tables = {number: list(table) for number, table in self._tables.items()}
        return other

    def number(self, told: int) -> int:
        """Return the number of a namespace whose inode was told."""
        return 0 if told == self._own else told

    def begin(self, number: int, before: int, *, anew: bool) -> None:
        """A process came from one namespace to another: that was made as a copy, if it is new.

        Args:
            number: The namespace where it is now.
            before: The one where it was.
            anew: No other process is there: numbers are given again.
        """
        if number not in self._tables or (anew and number not in self._lasting):
            self._tables[number] = list(self._tables[before])

    def where(self, number: int, path: bytes) -> bytes | None:
        """Return the name below a spool, or outside all, that a name leads to.

        None: it leads to another filesystem.
        """
        # The last one that holds it is on top.
        for one in reversed(self._tables[number]):
            if one.holds(path):
                return None if one.source is None else one.source + path[len(one.place) :]
        return path

    def mounted(self, number: int, place: bytes, source: bytes | None) -> None:
        """Something was mounted; ``source``: the directory of a spool that it shows."""
        self._tables[number].append(Mounted(place, source))
        self.any = True

    def repeated(self, number: int, place: bytes, source: bytes) -> None:
        """What is mounted below a directory is also below another from now on (mount --rbind)."""
        for one in list(self._held(number, source)):
            if one.place != source:
                self.mounted(number, place + one.place[len(source) :], one.source)

    def moved(self, number: int, place: bytes, to: bytes) -> None:
        """A mount went to another place, with those on it."""
        taken = self._taken(number, place)
        # It was mounted by a call that is not in the trace, of something else most likely.
        for one in taken or [Mounted(place, None)]:
            self.mounted(number, to + one.place[len(place) :], one.source)

    def unmounted(self, number: int, place: bytes) -> None:
        """The last mount on a directory went, with those on it."""
        self._taken(number, place)

    def renamed(self, old: bytes, new: bytes) -> None:
        """A directory has another name, under mounts or shown by one."""

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
        """Take a mount away, and the later ones below it."""
        table = self._tables[number]
        first = max((at for at, one in enumerate(table) if one.place == place), default=None)
        if first is None:
            return []
        gone = [one for one in self._held(number, place) if one in table[first:]]
        self._tables[number] = table[:first] + [one for one in table[first:] if one not in gone]
        return gone
