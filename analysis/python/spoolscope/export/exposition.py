"""The text that Prometheus reads, in both of its forms: the only writer of it."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any

from spoolscope.traces.text import shown

Labels = tuple[str, ...]
_UNITS = ("seconds", "bytes", "calls")


class Exposition:
    """Writer of metric families; counters and times in seconds are integers, so exact.

    Args:
        at_ns: Timestamp of all samples, ns since the epoch; None: they have none.
        plain: Write the older text format 0.0.4, the only one of node_exporter's textfiles,
            instead of OpenMetrics 1.0.
    """

    def __init__(self, *, at_ns: int | None = None, plain: bool = False) -> None:
        self._at = "" if at_ns is None else f" {seconds(at_ns)}"
        self._plain = plain

    def histogram(
        self,
        name: str,
        help_: str,
        labels: Labels,
        rows: Iterable[Sequence[Any]],
        bounds_ns: Sequence[int],
    ) -> Iterator[str]:
        """Yield a histogram of times.

        Args:
            name: Its name, which ends in _seconds.
            help_: One sentence.
            labels: Names of its labels.
            rows: The values of the labels, the index of a bound, the number of values up to it
                and above the one before, and their sum in ns. An index past the last bound is
                that of all greater values.
            bounds_ns: Upper bounds, each included, in ns.
        """
        numbers: dict[Labels, Counter[int]] = defaultdict(Counter)
        sums: Counter[Labels] = Counter()
        for *values, bucket, n, ns in rows:
            numbers[_shown(values)][bucket] += n
            sums[_shown(values)] += ns
        yield from self._head(name, "histogram", help_)
        bounds = [*(f"{bound / 1e9:.12g}" for bound in bounds_ns), "+Inf"]
        for key, counted in numbers.items():
            own = dict(zip(labels, key, strict=True))
            below = list(accumulate(counted[at] for at in range(len(bounds))))
            for bound, n in zip(bounds, below, strict=True):
                yield self._sample(f"{name}_bucket", {**own, "le": bound}, str(n))
            yield self._sample(f"{name}_count", own, str(below[-1]))
            yield self._sample(f"{name}_sum", own, seconds(sums[key]))

    def counter(
        self, name: str, help_: str, labels: Labels, rows: Iterable[Sequence[Any]]
    ) -> Iterator[str]:
        """Yield a counter of rows of labels and a number: ns if it counts seconds."""
        yield from self._numbers(name, "counter", help_, labels, rows)

    def gauge(
        self, name: str, help_: str, labels: Labels, rows: Iterable[Sequence[Any]]
    ) -> Iterator[str]:
        """Yield a gauge of rows of labels and a number: ns if it is in seconds."""
        yield from self._numbers(name, "gauge", help_, labels, rows)

    def info(
        self, name: str, help_: str, labels: Labels, rows: Iterable[Sequence[Any]]
    ) -> Iterator[str]:
        """Yield facts as labels; the number of each row is 1."""
        yield from self._numbers(name, "info", help_, labels, rows)

    def end(self) -> Iterator[str]:
        """Yield the last line, if this form has one."""
        if not self._plain:
            yield "# EOF"

    def _numbers(
        self, name: str, kind: str, help_: str, labels: Labels, rows: Iterable[Sequence[Any]]
    ) -> Iterator[str]:
        sums: Counter[Labels] = Counter()
        for *values, number in rows:
            sums[_shown(values)] += number
        yield from self._head(name, kind, help_)
        suffix = {"counter": "_total", "info": "_info"}.get(kind, "")
        for key, number in sums.items():
            own = dict(zip(labels, key, strict=True))
            yield self._sample(f"{name}{suffix}", own, _value(name, number))

    def _head(self, name: str, kind: str, help_: str) -> Iterator[str]:
        unit = name.rpartition("_")[2]
        if self._plain:
            name += {"counter": "_total", "info": "_info"}.get(kind, "")
            kind = "gauge" if kind == "info" else kind
        yield f"# TYPE {name} {kind}"
        if unit in _UNITS and not self._plain:
            yield f"# UNIT {name} {unit}"
        yield f"# HELP {name} {help_}"

    def _sample(self, name: str, labels: Mapping[str, str], value: str) -> str:
        inner = ",".join(f'{label}="{_escaped(text)}"' for label, text in labels.items())
        return f"{name}{f'{{{inner}}}' if inner else ''} {value}{self._at}"


def seconds(ns: int) -> str:
    """Return nanoseconds as seconds, exactly."""
    return f"{'-' if ns < 0 else ''}{abs(ns) // 10**9}.{abs(ns) % 10**9:09}"


def _value(name: str, number: int) -> str:
    return seconds(number) if name.endswith("_seconds") else str(int(number))


def _shown(values: Sequence[str]) -> Labels:
    return tuple(map(shown, values))


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')
