"""Facts on files that strace does not print but that follow: identity, size, type, positions.

A size that is not known yet is an unknown plus the bytes appended since; a later call may give
its value, for earlier calls, too. Everything else stays unknown, never guessed.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from spoolscope.traces.abi import S_IFMT

DEVICE = 1
"""Device of the spool; strace does not print its real number."""


class Quantity(NamedTuple):
    """An unknown, by number (0: none), plus a number of bytes."""

    unknown: int
    plus: int

    def __add__(self, n: int) -> "Quantity":  # type: ignore[override]
        return Quantity(self.unknown, self.plus + n)


ZERO = Quantity(0, 0)
NOWHERE = Quantity(1, 0)
"""Never known."""


def known(n: int) -> Quantity:
    """Return a known number of bytes."""
    return Quantity(0, n)


class Unknowns:
    """Values that become known later, or never (-1)."""

    def __init__(self) -> None:
        self._values: list[int] = [0, -1]
        self._larger: list[tuple[Quantity, Quantity, Quantity]] = []

    def new(self) -> Quantity:
        """Return a quantity with a new unknown."""
        self._values.append(-1)
        return Quantity(len(self._values) - 1, 0)

    def set(self, quantity: Quantity, value: int) -> None:
        """Set the value of a quantity."""
        if quantity.unknown > NOWHERE.unknown and self._values[quantity.unknown] < 0:
            self._values[quantity.unknown] = max(value - quantity.plus, 0)

    def value(self, quantity: Quantity) -> int:
        """Return a quantity in bytes, -1 if unknown."""
        base = self._values[quantity.unknown]
        return base + quantity.plus if base >= 0 else -1

    def values(self) -> npt.NDArray[np.int64]:
        """Return all unknowns by number, -1 if never known."""
        return np.array(self._values, np.int64)

    def larger(self, one: Quantity, other: Quantity) -> Quantity:
        """Return the larger of two, or a new unknown if they cannot be compared."""
        if one.unknown == other.unknown:
            return max(one, other)
        made = self.new()
        self._larger.append((made, one, other))
        return made

    def compared(self) -> frozenset[int]:
        """Return the unknowns that were compared with others."""
        return frozenset(one.unknown for _, *pair in self._larger for one in pair)

    def settle(self) -> None:
        """Set what was compared: if the larger of two is not the one, it is the other."""
        for made, one, other in reversed(self._larger):
            largest = self.value(made)
            for this, that in ((one, other), (other, one)):
                if self.value(this) < 0 <= self.value(that) < largest:
                    self.set(this, largest)


@dataclass
class Object:
    """A file or directory.

    Attributes:
        ino: Number that identifies it; not the kernel's.
        size: Its present size.
        mode: An unknown: st_mode since its last change.
    """

    ino: int
    size: Quantity
    mode: Quantity


class Objects:
    """All objects, numbered from 1 in the order of their first use."""

    def __init__(self) -> None:
        self.unknowns = Unknowns()
        self._objects: list[Object] = []
        self._begun: list[Quantity] = []

    def new(self, *, empty: bool) -> Object:
        """Return a new object; ``empty``: a call made it just now."""
        size = ZERO if empty else self.unknowns.new()
        made = Object(len(self._objects) + 1, size, self.unknowns.new())
        self._objects.append(made)
        return made

    def of(self, ino: int) -> Object:
        """Return an object by its number."""
        return self._objects[ino - 1]

    def saw_mode(self, found: Object, mode: int) -> None:
        """Set an object's mode, which a call returned; a change by a call unseen may precede it."""
        if mode and self.unknowns.value(found.mode) not in (-1, mode):
            found.mode = self.unknowns.new()
        if mode:
            self.unknowns.set(found.mode, mode)

    def chmod(self, found: Object, mode: int) -> None:
        """Set an object's permissions, which a call changed."""
        before = self.unknowns.value(found.mode)
        found.mode = self.unknowns.new()
        if before >= 0:
            self.unknowns.set(found.mode, before & S_IFMT | mode & 0o7777)

    def begun(self) -> Quantity:
        """Return the unknown position of a file that was open at the start."""
        self._begun.append(self.unknowns.new())
        return self._begun[-1]

    def settle(self) -> None:
        """Find what later values show of earlier ones.

        A file that was only read was read from its begin, unless a call shows a position.
        """
        self.unknowns.settle()
        compared = self.unknowns.compared()
        for position in self._begun:
            if position.unknown not in compared:
                self.unknowns.set(position, 0)

    def saw_size(self, found: Object, size: int) -> None:
        """Set an object's size, which a call returned."""
        self.unknowns.set(found.size, size)
        found.size = known(size)
