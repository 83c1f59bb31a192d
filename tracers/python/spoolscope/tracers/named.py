"""Names of calls as absolute paths."""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple, cast

from spoolscope.tracers import given
from spoolscope.tracers.aliases import Aliases

REMEMBERED = 1 << 16
"""Names that are found without being joined again: more would be most of the memory of names."""
BASE_NONE, BASE_ROOT, BASE_CWD, BASE_FD = range(4)


class Named(NamedTuple):
    """A path of a call.

    Attributes:
        path: Id, -1 if unknown.
        base: Directory that it is relative to (enum spsc_path_base).
        given: Id of the path in the form in which it was given, -1 if that is the same.
        way: The name that was walked, if a mount is on the way; if that is another filesystem, path
            is -1.
    """

    path: int = -1
    base: int = BASE_NONE
    given: int = -1
    way: bytes | None = None

    @property
    def is_elsewhere(self) -> bool:
        """True if it is on another filesystem, mounted below a spool."""
        return self.path < 0 and self.way is not None


NOTHING = Named()
# As Named._make, which takes three times as long.
as_named = cast(
    "Callable[[tuple[int, int, int, bytes | None]], Named]", partial(tuple.__new__, Named)
)


class Names:
    """Interned absolute paths.

    Attributes:
        paths: Paths by id.
        ids: Ids by path.
        here: Whether each of them is on a spool.
    """

    def __init__(self, aliases: Aliases, mounts: tuple[bytes, ...]) -> None:
        self._aliases, self._mounts = aliases, mounts
        self.paths: list[bytes] = []
        self.here: list[bool] = []
        self.ids: dict[bytes, int] = {}
        self._named: dict[tuple[bytes, bytes, int], Named] = {}

    def id(self, path: bytes) -> int:
        """Return the id of an absolute path."""
        number = self.ids.get(path)
        if number is None:
            number = self.ids[path] = len(self.paths)
            self.paths.append(path)
            self.here.append(path.startswith(self._mounts) or path + b"/" in self._mounts)
        return number

    def clear(self) -> None:
        """Remove all paths."""
        self.paths.clear()
        self.here.clear()
        self.ids.clear()
        self._named.clear()

    def named(self, base: bytes, name: bytes, kind: int) -> Named:
        """Return the path of a name relative to base (the root for absolute names)."""
        key = (base, name, kind)
        named = self._named.get(key)
        if named is None:
            whole = base + b"/" + name if base or name[:1] != b"/" else name
            path, as_given = self._join(whole, name)
            number = self.id(path)
            named = as_named((number, kind, -1 if as_given is None else self.id(as_given), None))
            if len(self._named) >= REMEMBERED:
                self._named.clear()
            self._named[key] = named
        return named

    def _join(self, whole: bytes, name: bytes) -> tuple[bytes, bytes | None]:
        """Return the path, and the form in which it was given if that differs."""
        if given.is_normal(whole):
            return self._aliases.real(whole) if self._aliases.any else whole, None
        path = self._aliases.real(given.normal(whole))
        if not given.is_special(name):
            return path, None
        return path, given.below(path, self._aliases.real(given.tidy(whole)), self._mounts)
