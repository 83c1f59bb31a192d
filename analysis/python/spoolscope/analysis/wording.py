"""Numbers for people. On disk and in JSON everything stays in ns and bytes."""

import math

from spoolscope.traces.text import shown

_UNITS = ((1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "µs"), (1, "ns"))
_SIZES = (("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10))


def duration(ns: float | None) -> str:
    """Return a duration with three significant digits, e.g. "12.1 s", "870 µs"; "-" for None."""
    if ns is None or math.isnan(ns):
        return "-"
    if ns == 0:
        return "0"
    size = abs(ns)
    scale, unit = next(((s, u) for s, u in _UNITS if size >= 0.9995 * s), _UNITS[-1])
    value = ns / scale
    digits = max(0, 2 - math.floor(math.log10(max(abs(value), 1) * 1.0005)))
    return f"{value:,.{digits if scale > 1 else 0}f} {unit}"


def size(bytes_: float) -> str:
    """Return a size with three significant digits, e.g. "1.02 GiB", "534 KiB"."""
    unit, scale = next(((u, 1 << s) for u, s in _SIZES if bytes_ >= 0.9995 * (1 << s)), ("B", 1))
    value = bytes_ / scale
    digits = max(0, 2 - math.floor(math.log10(max(value, 1) * 1.0005)))
    return f"{value:,.{digits if scale > 1 else 0}f} {unit}"


def percent(share: float | None, digits: int = 1) -> str:
    """Return a share in per cent, e.g. "12.3 %"; nearly 0 as "< 0.1 %", nearly 1 likewise."""
    if share is None or math.isnan(share):
        return "-"
    least = 10**-digits
    if share in (0, 1):
        return f"{100 * share:.0f} %"
    if 0 < 100 * share < least:
        return f"< {least:g} %"
    if 100 - least < 100 * share < 100:
        return f"> {100 - least:.{digits}f} %"
    said = f"{100 * share:.{digits}f}"
    return f"{said} %" if float(said) else "0 %"  # not -0.0


def count(n: int) -> str:
    """Return a count with thousands separators."""
    return f"{n:,}"


def counted(n: int, noun: str) -> str:
    """Return a count with its noun, as "1 host" and "2 hosts"."""
    return f"{count(n)} {noun}{'s' * (n != 1)}"


def once(options: str) -> str:
    """Return mount options, each once: those of a mount repeat some of its filesystem."""
    return ",".join(dict.fromkeys(options.split(",")))


def fitting(name: str, width: int, head: int = 0) -> str:
    """Return a name in ``width`` characters: the first ``head``, "…" and its end, if longer.

    Different names, e.g. of directories and candidates, mostly differ at their end.
    """
    name = shown(name)
    return name if len(name) <= width else f"{name[:head]}…{name[head + 1 - width :]}"


def change(ratio: float) -> str:
    """Return a ratio as a change: "31 % less", "4.2 % more", "2.9 times the", "the same"."""
    if math.isnan(ratio):
        return "an unknown share of the"
    if ratio >= 2:
        return f"{ratio:.1f} times the"
    change_pct = 100 * abs(ratio - 1)
    if change_pct < 0.05:
        return "the same"
    digits = 0 if change_pct >= 9.95 else 1
    return f"{change_pct:.{digits}f} % {'less' if ratio < 1 else 'more'}"


FAR = 1000
"""Ratio from which an interval shows only that nothing is known."""


def interval(low: float | None, high: float | None) -> str:
    """Return an interval of ratios as changes, e.g. "-36 % to -25 %"; "-" if there is none."""
    if low is None or high is None:
        return "-"
    if high >= FAR:
        return f"{low:.1f} to {FAR:,}+ times"
    if high >= 3:
        return f"{low:.1f} to {high:.1f} times"
    return f"{_signed(low)} to {_signed(high)}"


def _signed(ratio: float) -> str:
    pct = 100 * (ratio - 1)
    return f"{pct:+.0f} %" if abs(pct) >= 9.5 else f"{pct:+.1f} %"
