"""Times, sizes and rules as they are given on the command line."""

import errno
import math
from collections.abc import Iterable
from typing import Any

import click

from spoolscope.tracers.request import FreezeRules, Limit

UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
SIZES = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


class Duration(click.ParamType):  # type: ignore[type-arg,unused-ignore]  # generic since click 8.4
    """Seconds, or a number with ms, s, m or h."""

    name = "duration"

    def convert(self, value: Any, param: Any, ctx: Any) -> float:
        """Return seconds."""
        if isinstance(value, float):
            return value
        digits = value.rstrip("mshn")
        try:
            seconds = float(digits) * UNITS[value[len(digits) :] or "s"]
        except (ValueError, KeyError):
            self.fail(f"{value!r} is not a time such as 30, 500ms, 10s, 5m or 1h", param, ctx)
        if not 0 < seconds < math.inf:
            self.fail("a recording needs a time above 0 that ends", param, ctx)
        return seconds


class LimitType(click.ParamType):  # type: ignore[type-arg,unused-ignore]
    """A time (5m, 1h) or, with a capital letter, a size (256M, 2G)."""

    name = "size|time"

    def convert(self, value: Any, param: Any, ctx: Any) -> Limit:
        """Return the limit."""
        if isinstance(value, Limit):
            return value
        if value[-1:] not in SIZES:
            return Limit(age_s=Duration().convert(value, param, ctx))
        try:
            size = int(float(value[:-1]) * SIZES[value[-1]])
        except (ValueError, OverflowError):
            size = 0
        if size <= 0:
            self.fail(f"{value!r} is not a size such as 64M or 2G", param, ctx)
        return Limit(size_bytes=size)


class FreezeRule(click.ParamType):  # type: ignore[type-arg,unused-ignore]
    """slow=TIME or errno=NAME."""

    name = "rule"

    def convert(self, value: Any, param: Any, ctx: Any) -> FreezeRules:
        """Return the rule."""
        if isinstance(value, FreezeRules):
            return value
        what, _, limit = value.partition("=")
        if what == "slow":
            return FreezeRules(slow_ns=round(Duration().convert(limit, param, ctx) * 1e9))
        number = getattr(errno, limit, None)
        if what != "errno" or not isinstance(number, int):
            self.fail(f"{value!r} is not a rule such as slow=500ms or errno=EIO", param, ctx)
        return FreezeRules(errno=number)


def both(rules: Iterable[FreezeRules]) -> FreezeRules:
    """Return the rules as one; of several of a kind the last counts."""
    slow_ns = number = None
    for rule in rules:
        slow_ns = rule.slow_ns if rule.slow_ns is not None else slow_ns
        number = rule.errno if rule.errno is not None else number
    return FreezeRules(slow_ns, number)
