"""Parsers of numbers, times and sizes on the command line."""

import re
from typing import Any

import click

from spoolscope.tracers.request import Limit

UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
SIZES = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
LONGEST_S = 366 * 24 * 3600.0
LARGEST_BYTES = 1 << 50
LONGEST_DAYS = 36_600
# PID_MAX_LIMIT of the kernel, include/linux/threads.h.
HIGHEST_PID = 1 << 22
LONGEST_SHOWN = 40
_PLAIN = re.compile(r"-?\d{1,20}(\.\d{1,9})?", re.ASCII)


class Number(click.ParamType):  # type: ignore[type-arg,unused-ignore]  # generic since click 8.4
    """A number between two bounds, both included.

    Args:
        least: Lower bound.
        most: Upper bound.
        whole: Accept only whole numbers.
    """

    name = "number"

    def __init__(self, least: float, most: float, *, whole: bool = True) -> None:
        self._least, self._most, self._whole = least, most, whole

    def convert(self, value: Any, param: Any, ctx: Any) -> int | float:
        """Return the number: an int if only whole ones are accepted."""
        given = _PLAIN.fullmatch(str(value))
        number = float("nan")
        if given is not None and not (self._whole and given[1]):
            number = int(given[0]) if self._whole else float(given[0])
        if not self._least <= number <= self._most:
            kind = "whole number" if self._whole else "number"
            bounds = f"from {self._least:,} to {self._most:,}"
            self.fail(f"{_shown(value)} is no {kind} {bounds}", param, ctx)
        return number


PID = Number(1, HIGHEST_PID)
SEED = Number(0, (1 << 64) - 1)
PERCENT = Number(0, 100)


class Duration(click.ParamType):  # type: ignore[type-arg,unused-ignore]
    """Seconds, or a number with ms, s, m or h.

    Args:
        shortest_s: Lower bound; the upper one is a year.
    """

    name = "duration"

    def __init__(self, shortest_s: float = 0.001) -> None:
        self._shortest_s = shortest_s

    def convert(self, value: Any, param: Any, ctx: Any) -> float:
        """Return seconds."""
        if isinstance(value, float):
            return value
        digits = value.rstrip("msh")
        unit = UNITS.get(value[len(digits) :] or "s")
        if unit is None or not _PLAIN.fullmatch(digits):
            self.fail(f"{_shown(value)} is not a time such as 30, 500ms, 10s, 5m or 1h", param, ctx)
        seconds = float(digits) * unit
        if not self._shortest_s <= seconds <= LONGEST_S:
            shortest = f"{self._shortest_s * 1000:g}ms"
            self.fail(f"{_shown(value)} is no time from {shortest} to a year (8784h)", param, ctx)
        return seconds


class LimitType(click.ParamType):  # type: ignore[type-arg,unused-ignore]
    """A time (5m, 1h) or, with a capital letter, a size (256M, 2G)."""

    name = "size|time"

    def convert(self, value: Any, param: Any, ctx: Any) -> Limit:
        """Return the limit."""
        if isinstance(value, Limit):
            return value
        if value[-1:] not in SIZES:
            return Limit(age_s=Duration(1.0).convert(value, param, ctx))
        digits = value[:-1]
        size = int(float(digits) * SIZES[value[-1]]) if _PLAIN.fullmatch(digits) else 0
        if not SIZES["K"] <= size <= LARGEST_BYTES:
            self.fail(f"{_shown(value)} is not a size such as 64M or 2G, up to 1024T", param, ctx)
        return Limit(size_bytes=size)


class Days(click.ParamType):  # type: ignore[type-arg,unused-ignore]
    """A number of days, with a d."""

    name = "days"

    def convert(self, value: Any, param: Any, ctx: Any) -> int:
        """Return the number of days."""
        given = re.fullmatch(r"(\d{1,6})d", str(value), re.ASCII)
        if isinstance(value, int):
            return value
        if given is None or not 1 <= int(given[1]) <= LONGEST_DAYS:
            self.fail(f"{_shown(value)} is no number of days such as 90d", param, ctx)
        return int(given[1])


class Size(click.ParamType):  # type: ignore[type-arg,unused-ignore]
    """A size with a capital letter: 256M, 2G."""

    name = "size"

    def convert(self, value: Any, param: Any, ctx: Any) -> int:
        """Return bytes."""
        if isinstance(value, int):
            return value
        if str(value).isdecimal():
            self.fail(f"{_shown(value)} has no unit; give a size such as 500M or 2G", param, ctx)
        limit = LimitType().convert(value, param, ctx)
        if limit.size_bytes is None:
            self.fail(f"{_shown(value)} is a time; give a size such as 2G", param, ctx)
        return limit.size_bytes


def _shown(value: object) -> str:
    """Return the given value in a form that keeps a message on one line."""
    text = str(value)
    return repr(text if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]}...")
