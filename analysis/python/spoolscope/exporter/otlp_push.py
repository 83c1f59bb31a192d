"""OTLP over HTTP: all metrics as one ExportMetricsServiceRequest, cumulative since the start.

The histograms have explicit bounds. Exponential ones cannot hold these buckets: theirs grow by a
power of two, those of roll-ups are 32 of equal width in each doubling, and only the doublings
themselves would be common to both.
"""

import os
import struct
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from http.client import HTTPException

from spoolscope.export.protobuf import fixed64, integer, key, message, text
from spoolscope.exporter import catalogue as of
from spoolscope.exporter.catalogue import Kind, Metric
from spoolscope.exporter.minute_sums import Key, MinuteSums
from spoolscope.traces.errors import USAGE, SpoolscopeError
from spoolscope.traces.text import shown
from spoolscope.traces.version import version

TIMEOUT_S = 10.0
HEADERS = "OTEL_EXPORTER_OTLP_HEADERS"
"""Variable with more headers, NAME=VALUE separated by commas, as all OTLP exporters have it."""
_CUMULATIVE = 2
_DOUBLE, _FIXED64 = 4, 6  # fields of the value of a NumberDataPoint


def request(sums: MinuteSums, host: str, start_ns: int, at_ns: int) -> bytes:
    """Return an encoded ExportMetricsServiceRequest.

    Args:
        sums: The values.
        host: Name of the host.
        start_ns: Time since which the counters count, ns since the epoch.
        at_ns: Time of the values.
    """
    when = fixed64(2, start_ns) + fixed64(3, at_ns)
    metrics = (_metric(sums, metric, when) for metric in of.METRICS)
    scope = message(1, text(1, "spoolscope"), text(2, version()))
    facts = {"service.name": "spoolscope", "host.name": host}
    resource = message(1, *(_attribute(1, name, value) for name, value in facts.items()))
    return message(1, resource, message(2, scope, *metrics))


def push(url: str, content: bytes) -> None:
    """Send a request.

    Raises:
        OSError: the receiver cannot be reached.
        ValueError: it refuses the request, or a part of it.
    """
    headers = {"Content-Type": "application/x-protobuf", **_more_headers()}
    asked = urllib.request.Request(url, content, headers, method="POST")
    try:
        with _OPENER.open(asked, timeout=TIMEOUT_S) as answer:
            said = answer.read(1 << 16)
    except urllib.error.HTTPError as error:
        error.close()
        raise ValueError(f"it answers {error.code} {error.reason}") from None
    except HTTPException as error:
        raise ValueError(f"it speaks no HTTP: {type(error).__name__}") from None
    except urllib.error.URLError as error:
        raise OSError(str(error.reason)) from None
    # An ExportMetricsServiceResponse is empty but for what was refused: field 1, a message.
    if said[:1] == key(1, 2):
        raise ValueError("it took only a part of the metrics")


def checked_url(url: str) -> str:
    """Return a URL, with the usual path if it has none.

    Raises:
        SpoolscopeError: it is none of HTTP.
    """
    parts = urllib.parse.urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.netloc:
        raise SpoolscopeError(
            f"{url!r} is no URL of an OTLP receiver",
            remedy="give --otlp http://HOST:4318/v1/metrics",
            exit_code=USAGE,
        )
    return parts._replace(path="/v1/metrics").geturl() if parts.path in ("", "/") else url


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Refuses redirects: the headers may hold a secret that is not for another host."""

    def redirect_request(self, *_: object, **__: object) -> None:
        return None


_OPENER = urllib.request.build_opener(_NoRedirects)


def _more_headers() -> dict[str, str]:
    found: dict[str, str] = {}
    for item in os.environ.get(HEADERS, "").split(","):
        name, _, value = item.partition("=")
        if name.strip():
            found[name.strip()] = urllib.parse.unquote(value.strip())
    return found


def _metric(sums: MinuteSums, metric: Metric, when: bytes) -> bytes:
    name, unit = metric.otlp
    head = text(1, name), text(2, metric.help), text(3, unit)
    if metric.kind is Kind.HISTOGRAM:
        points = _histogram_points(sums, metric, when)
        return message(2, *head, message(9, *points, integer(2, _CUMULATIVE)))
    points = (_point(metric, key_, n, when) for key_, n in sums.numbers[metric].items())
    if metric.kind is Kind.COUNTER:
        return message(2, *head, message(7, *points, integer(2, _CUMULATIVE), integer(3, 1)))
    return message(2, *head, message(5, *points))


def _point(metric: Metric, labels: Key, number: int, when: bytes) -> bytes:
    if metric.unit == of.SECONDS:
        value = _doubles(_DOUBLE, number / 1e9)
    else:
        value = fixed64(_FIXED64, number)
    return message(1, when, value, *_attributes(7, metric, labels))


def _histogram_points(sums: MinuteSums, metric: Metric, when: bytes) -> Iterator[bytes]:
    bounds = _packed(7, "d", [ns / 1e9 for ns in of.BOUNDS_NS])
    for labels, ns in sums.totals[metric].items():
        counts = [sums.buckets[metric][labels, at] for at in range(len(of.BOUNDS_NS) + 1)]
        yield message(
            1,
            when,
            fixed64(4, sum(counts)),
            _doubles(5, ns / 1e9),
            _packed(6, "Q", counts),
            bounds,
            *_attributes(9, metric, labels),
        )


def _doubles(field: int, value: float) -> bytes:
    return key(field, 1) + struct.pack("<d", value)


def _packed(field: int, kind: str, values: list[int] | list[float]) -> bytes:
    return message(field, struct.pack(f"<{len(values)}{kind}", *values))


def _attributes(field: int, metric: Metric, labels: Key) -> Iterator[bytes]:
    for name, value in zip(metric.labels, labels, strict=True):
        yield _attribute(field, name, value)


def _attribute(field: int, name: str, value: str) -> bytes:
    return message(field, text(1, name), message(2, text(1, shown(value))))
