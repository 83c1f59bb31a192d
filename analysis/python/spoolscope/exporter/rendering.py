"""The values of all metrics as text for Prometheus."""

from collections.abc import Iterator
from typing import Any

from spoolscope.export.exposition import Exposition
from spoolscope.exporter import catalogue as of
from spoolscope.exporter.catalogue import Kind, Metric
from spoolscope.exporter.minute_sums import MinuteSums

OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"
PLAIN = "text/plain; version=0.0.4; charset=utf-8"


def rendered(sums: MinuteSums, form: str, at_ns: int | None = None) -> str:
    """Return the text of all metrics.

    Args:
        sums: The values.
        form: Media type: OPENMETRICS or PLAIN.
        at_ns: Timestamp of all samples, ns since the epoch; None: none.
    """
    return "".join(f"{line}\n" for line in _lines(sums, form, at_ns))


def _lines(sums: MinuteSums, form: str, at_ns: int | None) -> Iterator[str]:
    out = Exposition(at_ns=at_ns, plain=form == PLAIN)
    for metric in of.METRICS:
        if metric.kind is Kind.HISTOGRAM:
            rows = _histogram_rows(sums, metric)
            yield from out.histogram(metric.name, metric.help, metric.labels, rows, of.BOUNDS_NS)
            continue
        numbers = [(*key, n) for key, n in sums.numbers[metric].items()]
        write = {Kind.COUNTER: out.counter, Kind.GAUGE: out.gauge, Kind.INFO: out.info}
        yield from write[metric.kind](metric.name, metric.help, metric.labels, numbers)
    yield from out.end()


def _histogram_rows(sums: MinuteSums, metric: Metric) -> Iterator[tuple[Any, ...]]:
    for (labels, bound), n in sums.buckets[metric].items():
        yield (*labels, bound, n, 0)
    for labels, ns in sums.totals[metric].items():
        yield (*labels, 0, 0, ns)
