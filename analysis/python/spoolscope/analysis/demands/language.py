"""The language of --fail-if: METRIC COMPARISON LIMIT, as in ``p99 of fsync > +10 %``.

A limit with a sign and %, or in times (``1.5 x``), is a change of the candidate against the
reference; any other limit is a value of the candidate itself.
"""

import re
from dataclasses import dataclass
from difflib import get_close_matches

from spoolscope.analysis.causes import BETWEEN_PROGRAMS, CAUSES
from spoolscope.analysis.latency import SYSCALL_CLASSES
from spoolscope.traces.calls import CALLS
from spoolscope.traces.errors import USAGE, SpoolscopeError

TIME, MEAN, QUANTILE, OVER, CAUSE, COUNT = "time", "mean", "quantile", "over", "cause", "count"
COUNTED = {
    "calls": "calls",
    "syncs": "syncs",
    "commits": "commits",
    "requests": "requests",
    "flushes": "flushes",
    "writes": "writes",
    "reads": "reads",
    "written bytes": "written_bytes",
    "read bytes": "read_bytes",
    "deliveries": "deliveries",
}
"""The things that can be counted, and their names in the sums of a recording."""
PER = ("second", "call", "delivery")

METRIC_FORMS = (
    "time, time of fsync, mean of fsync, p99 of rename, median of sync, calls over 10 ms, "
    "fsync over 100 ms, journal commit, commits, commits per delivery, written bytes per call"
)
LIMIT_FORMS = "+10 %, -5 %, 1.5 x, 20 ms or, for a share of calls, 1 %"

_UNITS = {"ns": 1, "us": 1e3, "µs": 1e3, "ms": 1e6, "s": 1e9}
_NUMBER = r"[0-9]+(?:\.[0-9]+)?"
_TIME = rf"({_NUMBER})\s*(ns|us|µs|ms|s)"
_COMPARISON = re.compile(r"(?<![<>=])(>=|<=|>|<)(?![<>=])")
_OF_CALLS = re.compile(r"(time|mean|median|p([0-9]{1,2}(?:\.[0-9]+)?))(?: of (.+))?")
_OVER = re.compile(rf"(?:calls(?: of (.+?))?|(\S+)) over {_TIME}(?: of (.+))?")
_CAUSES = {name: name for name in CAUSES} | {c.label.lower(): name for name, c in CAUSES.items()}


@dataclass(frozen=True)
class Metric:
    """A metric: the quantity that is measured.

    Attributes:
        words: The metric as it was given.
        kind: TIME, MEAN, QUANTILE, OVER, CAUSE or COUNT.
        calls: Names of calls; empty means all.
        q: The quantile, 0 to 1.
        over_ns: Calls that took longer than this count.
        name: Name of the cause, or of the counted thing as in the sums.
        per: second, call or delivery.
    """

    words: str
    kind: str
    calls: tuple[str, ...] = ()
    q: float = 0.0
    over_ns: float = 0.0
    name: str = ""
    per: str = "second"

    @property
    def unit(self) -> str:
        """Return "ns", "share" (of calls) or "" for a number or bytes."""
        return {COUNT: "", OVER: "share"}.get(self.kind, "ns")


@dataclass(frozen=True)
class Demand:
    """An expression of --fail-if.

    Attributes:
        text: The expression as it was given.
        metric: The metric.
        above: True if it fails above the limit, False if below; at the limit itself if inclusive.
        limit: A ratio candidate by reference if ``relative``, else a value of the candidate: ns, a
            share from 0 to 1, or a number.
        relative: See ``limit``.
    """

    text: str
    metric: Metric
    above: bool
    limit: float
    relative: bool
    inclusive: bool = False

    def holds(self, low: float, high: float) -> tuple[bool, bool]:
        """Return whether the expression is true of a whole interval, and whether of no part."""
        if not self.above:
            low, high, limit = -high, -low, -self.limit
        else:
            limit = self.limit
        if self.inclusive:
            return low >= limit, high < limit
        return low > limit, high <= limit


def parse_demand(text: str) -> Demand:
    """Read an expression.

    Raises:
        SpoolscopeError: it is no expression; the remedy shows a similar valid one.
    """
    said = " ".join(text.split())
    parts = _COMPARISON.split(said)
    if len(parts) != 3:
        raise _wrong(text, "it needs one of > < >= <=", "write METRIC > LIMIT, as 'time > +10 %'")
    name, comparison, limit = (part.strip() for part in parts)
    metric = parse_metric(name, text)
    relative, value = _limit(limit, metric, text)
    return Demand(said, metric, comparison[0] == ">", value, relative, "=" in comparison)


def parse_metric(name: str, text: str | None = None) -> Metric:
    """Read the metric, left of the comparison sign; ``text`` is the whole expression, for errors.

    Raises:
        SpoolscopeError: it is no metric.
    """
    whole, words = text or name, name.lower()
    if not words:
        raise _wrong(whole, "it has no metric", f"give one of: {METRIC_FORMS}")
    cause = _CAUSES.get(words.removeprefix("time of "))
    if cause in BETWEEN_PROGRAMS:
        raise _wrong(
            whole, f"{words} is a wait of programs for programs, not compared", "give other causes"
        )
    if cause is not None:
        return Metric(name, CAUSE, name=cause)
    if found := _OF_CALLS.fullmatch(words):
        return _of_calls(name, found, whole)
    if found := _OVER.fullmatch(words):
        of, named, number, unit, after = found.groups()
        over_ns = float(number) * _UNITS[unit]
        return Metric(name, OVER, _calls(of or named or after, whole), over_ns=over_ns)
    return _count(name, words, whole)


def _of_calls(name: str, found: re.Match[str], text: str) -> Metric:
    kind, percentile, of = found.groups()
    calls = _calls(of, text)
    if kind in (TIME, MEAN):
        return Metric(name, kind, calls)
    q = 0.5 if kind == "median" else float(percentile) / 100
    if not 0 < q < 1:
        raise _wrong(text, f"'{kind}' is no percentile", "give p1 to p99.99")
    return Metric(name, QUANTILE, calls, q=q)


def _count(name: str, words: str, text: str) -> Metric:
    counted, _, per = words.partition(" per ")
    if counted not in COUNTED:
        known = ", ".join((*COUNTED, *(cause.label for cause in CAUSES.values())))
        raise _wrong(
            text, f"'{name}' is no metric", f"give {METRIC_FORMS}; all that is counted: {known}"
        )
    if per and per not in PER:
        raise _wrong(text, f"nothing is counted per '{per}'", f"give one of: {', '.join(PER)}")
    return Metric(name, COUNT, name=COUNTED[counted], per=per or "second")


def _calls(of: str | None, text: str) -> tuple[str, ...]:
    """Return the calls that a word means: a family of calls, a call, or ``calls`` for all."""
    if of is None or of == "calls":
        return ()
    word = of.strip()
    found = SYSCALL_CLASSES.get(word, (word,) if word in CALLS else ())
    if set(found) & set(SYSCALL_CLASSES["lock"]):
        raise _wrong(
            text, f"{word} is a wait of programs for programs, not compared", "give other calls"
        )
    if found:
        return found
    near = get_close_matches(word, [*CALLS, *SYSCALL_CLASSES], 1)
    remedy = f"did you mean {near[0]}? " if near else ""
    families = ", ".join(name for name in SYSCALL_CLASSES if name != "lock")
    raise _wrong(text, f"'{word}' is no call", f"{remedy}give a call, or one of: {families}")


def _limit(limit: str, metric: Metric, text: str) -> tuple[bool, float]:
    """Return True if a limit is a change (False: a value), and the number."""
    if found := re.fullmatch(rf"([+-])\s*({_NUMBER})\s*%", limit):
        sign, number = found.groups()
        ratio = 1 + float(number) / (100 if sign == "+" else -100)
        if ratio < 0:
            raise _wrong(text, f"nothing falls by {number} %", "give at most -100 %")
        return True, ratio
    if found := re.fullmatch(rf"({_NUMBER})\s*(?:x|times)", limit):
        return True, float(found[1])
    if found := re.fullmatch(rf"({_NUMBER})\s*%", limit):
        if metric.unit != "share":
            raise _wrong(
                text, f"'{limit}' has no sign", f"write +{found[1]} % or -{found[1]} % of change"
            )
        return False, float(found[1]) / 100
    value = _value(limit, metric.unit)
    if value is None:
        raise _wrong(text, f"'{limit}' is no limit of {metric.words}", f"give {LIMIT_FORMS}")
    if metric.kind in (TIME, CAUSE) and metric.unit == "ns":
        raise _wrong(
            text,
            f"the {metric.words} of another load is another one",
            "give a change, as +10 %, or write 'mean of' a call",
        )
    return False, value


def _value(limit: str, unit: str) -> float | None:
    if unit == "ns" and (found := re.fullmatch(_TIME, limit)):
        return float(found[1]) * _UNITS[found[2]]
    if unit == "" and re.fullmatch(_NUMBER, limit):
        return float(limit)
    return None


def _wrong(text: str, what: str, remedy: str) -> SpoolscopeError:
    return SpoolscopeError(f"--fail-if '{text}': {what}", remedy=remedy, exit_code=USAGE)
