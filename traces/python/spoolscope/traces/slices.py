"""A part of a recording, for --slice."""

import re
from dataclasses import dataclass

from spoolscope.traces.errors import USAGE, SpoolscopeError

_UNITS = {"ms": 10**6, "s": 10**9, "m": 60 * 10**9, "h": 3600 * 10**9}
_TIME = r"[0-9]{1,15}(?:\.[0-9]{1,9})?(?:ms|s|m|h)?"
_LONGEST_NS = 366 * 24 * 3600 * 10**9


@dataclass(frozen=True)
class Slice:
    """A part of the recording, in ns since its beginning; ``to_ns`` None is its end."""

    from_ns: int
    to_ns: int | None

    @property
    def label(self) -> str:
        """The part in words."""
        to = "the end" if self.to_ns is None else f"{self.to_ns / 1e9:g} s"
        return f"from {self.from_ns / 1e9:g} s to {to}"

    @property
    def text(self) -> str:
        """The part in the form that ``parse_slice`` reads."""
        to = "" if self.to_ns is None else time_text(self.to_ns)
        return f"{time_text(self.from_ns)}..{to}"

    def check_within(self, duration_ns: int) -> None:
        """Check that it begins before the end of a recording of this length, ns.

        Raises:
            SpoolscopeError: it does not.
        """
        if self.from_ns >= duration_ns:
            raise SpoolscopeError(
                f"--slice begins at {self.from_ns / 1e9:g} s, the recording ends at "
                f"{duration_ns / 1e9:.1f} s",
                remedy="give a part of it",
                exit_code=USAGE,
            )


def parse_slice(text: str) -> Slice:
    """Parse ``T0..T1``: times since the recording began, as ``90``, ``1.5m`` or nothing.

    Raises:
        SpoolscopeError: it has another form, or ends before it begins.
    """
    match = re.fullmatch(rf"({_TIME})?\.\.({_TIME})?", text)
    if match is not None:
        from_ns, to_ns = (None if time is None else _ns(time) for time in match.group(1, 2))
        from_ns = from_ns or 0
        representable = max(from_ns, to_ns or 0) <= _LONGEST_NS
        if representable and (to_ns is None or to_ns > from_ns):
            return Slice(from_ns, to_ns)
    raise SpoolscopeError(
        f"'{text}' is no part of a recording",
        remedy="give FROM..TO since it began, e.g. 10s..1m, 90.. or ..500ms",
        exit_code=USAGE,
    )


def parse_time(text: str) -> int:
    """Parse a time such as ``90``, ``1.5m`` or ``500ms``; return it in ns.

    Raises:
        ValueError: it is not a time, or over a year.
    """
    if re.fullmatch(_TIME, text) is None or _ns(text) > _LONGEST_NS:
        raise ValueError(text)
    return _ns(text)


def time_text(ns: int) -> str:
    """Return a time exactly, in the form that ``parse_time`` reads."""
    return f"{ns // 10**9}.{ns % 10**9:09}".rstrip("0").rstrip(".")


def _ns(time: str) -> int:
    number = time.rstrip("mhs")
    return round(float(number) * _UNITS[time[len(number) :] or "s"])
