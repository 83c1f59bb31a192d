"""Tracks without overlaps."""


class Lanes:
    """Assignment of each interval, in order of begin, to the first free lane."""

    def __init__(self) -> None:
        self._free_ns: list[int] = []

    def of(self, from_ns: int, to_ns: int) -> int:
        """Return the lane of an interval, from 0, and take it until its end."""
        for lane, free_ns in enumerate(self._free_ns):
            if free_ns <= from_ns:
                self._free_ns[lane] = to_ns
                return lane
        self._free_ns.append(to_ns)
        return len(self._free_ns) - 1
