"""OTLP as lines of JSON: a span for each call, with its causes, and metrics of all of them."""

import hashlib
import json
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, TextIO

from spoolscope.analysis.causes import CAUSES
from spoolscope.export.content import Call, Content
from spoolscope.export.folded import BY_CAUSE
from spoolscope.traces.text import shown

SPANS_A_LINE = 1000
"""Spans of one line: the collector accepts no line over 1 MB by default."""
SPANS_HELD = 50_000
"""Spans of all processes that are in memory before all are written."""
SCOPE = {"name": "spoolscope"}
INTERNAL = 1  # SPAN_KIND_INTERNAL
CUMULATIVE = 2  # AGGREGATION_TEMPORALITY_CUMULATIVE

_COMMITS = """
SELECT c.commit_id, c.from_ns, c.to_ns, c.kind, c.filesystem, c.trigger, c.trigger_comm,
    c.trigger_pid
FROM commit_spans c ORDER BY c.commit_id
"""
_COMMIT_OF = """
SELECT wait_id, commit_id FROM commit_waits WHERE is_last GROUP BY ALL
"""


class Otlp:
    """A file of the collector's otlpjsonfile receiver: one object a line."""

    sentence = "OpenTelemetry: a span for each call, wait and commit, and metrics; JSON lines."
    opens = "an OpenTelemetry collector with receivers: otlpjsonfile: include: [{output}]"
    call_by_call = True

    def write(self, content: Content, output: Path) -> None:
        """Write metrics, commits, then calls; times are ns since the epoch, as text."""
        with output.open("x", encoding="ascii") as file:
            _line(file, {"resourceMetrics": [_metrics(content)]})
            spans = _Spans(content)
            for resource, part in spans.parts():
                made = {"resource": resource, "scopeSpans": [{"scope": SCOPE, "spans": part}]}
                _line(file, {"resourceSpans": [made]})


def _line(file: TextIO, value: dict[str, Any]) -> None:
    file.write(json.dumps(value, separators=(",", ":")).replace("\x7f", "\\u007f") + "\n")


class _Spans:
    """The spans: a trace for each call, with its parts as children and a link to its commit."""

    def __init__(self, content: Content) -> None:
        content.find_commits()
        self._content = content
        self._seed = hashlib.sha256(content.trace.identity.encode()).hexdigest()[:16]
        self._commit_of = dict(content.rows(_COMMIT_OF))
        self._n = 0

    def parts(self) -> Iterator[tuple[dict[str, Any], list[dict[str, Any]]]]:
        """Yield resources with some of their spans."""
        commits = map(self._commit, self._content.rows(_COMMITS))
        while part := list(islice(commits, SPANS_A_LINE)):
            yield _resource("journal", None), part
        held: dict[tuple[str, int], list[dict[str, Any]]] = defaultdict(list)
        n = 0
        for call in self._content.calls():
            part = held[call.comm, call.pid]
            before = len(part)
            part += self._call(call)
            n += len(part) - before
            if len(part) >= SPANS_A_LINE or n >= SPANS_HELD:
                many = [(call.comm, call.pid)] if n < SPANS_HELD else list(held)
                for key in many:
                    spans = held.pop(key)
                    n -= len(spans)
                    yield _resource(*key), spans
        for key, spans in held.items():
            yield _resource(*key), spans

    def _commit(self, row: Sequence[Any]) -> dict[str, Any]:
        number, from_ns, to_ns, kind, *values = row
        names = ("filesystem", "trigger", "trigger.comm", "trigger.pid")
        attributes = {f"spoolscope.{n}": v for n, v in zip(names, values, strict=True)}
        return _span(*self._commit_ids(number), kind, from_ns, to_ns, attributes)

    def _commit_ids(self, number: int) -> tuple[str, str]:
        return f"{self._seed}c{number:015x}", f"c{number:015x}"

    def _call(self, call: Call) -> Iterator[dict[str, Any]]:
        self._n += 1
        ids = f"{self._seed}{self._n:016x}", f"{self._n << 12:016x}"
        attributes = {
            "thread.id": call.tid,
            "spoolscope.ret": call.ret,
            "spoolscope.errno": call.errno or None,
            "file.path": call.path or None,
        }
        yield _span(*ids, call.name, call.from_ns, call.to_ns, attributes)
        for number, part in enumerate(call.parts, 1):
            own = ids[0], f"{(self._n << 12) + number:016x}"
            cause = {"spoolscope.cause": part.cause, "spoolscope.placed": part.placed}
            label = CAUSES[part.cause].label
            made = _span(*own, label, part.from_ns, part.to_ns, cause) | {"parentSpanId": ids[1]}
            commit = None if part.wait_id is None else self._commit_of.get(part.wait_id)
            if commit is not None:
                trace_id, span_id = self._commit_ids(commit)
                made["links"] = [{"traceId": trace_id, "spanId": span_id}]
            yield made


def _span(
    trace_id: str, span_id: str, name: str, from_ns: int, to_ns: int, attributes: dict[str, Any]
) -> dict[str, Any]:
    return {
        "traceId": trace_id,
        "spanId": span_id,
        "name": shown(name),
        "kind": INTERNAL,
        "startTimeUnixNano": str(from_ns),
        "endTimeUnixNano": str(to_ns),
        "attributes": _attributes(attributes),
    }


def _resource(name: str, pid: int | None) -> dict[str, Any]:
    return {"attributes": _attributes({"service.name": name, "process.pid": pid})}


def _attributes(attributes: dict[str, Any]) -> list[dict[str, Any]]:
    """Return attributes in the form of OTLP, without those that are None."""
    return [
        {"key": key, "value": _value(value)}
        for key, value in attributes.items()
        if value is not None
    ]


def _value(value: Any) -> dict[str, Any]:
    if isinstance(value, bool):
        return {"boolValue": value}
    return {"intValue": str(value)} if isinstance(value, int) else {"stringValue": shown(value)}


def _metrics(content: Content) -> dict[str, Any]:
    """Return sums in integer ns: the time of calls by program, call and cause, and their number."""
    start, end = content.start_ns, content.start_ns + int(content.trace.meta["duration_ns"])
    when = {"startTimeUnixNano": str(start), "timeUnixNano": str(end)}
    names = ("program", "call", "cause")
    times = [
        {**when, "asInt": str(ns), "attributes": _attributes(dict(zip(names, key, strict=True)))}
        for *key, ns in content.rows(BY_CAUSE)
    ]
    counted = "SELECT comm, syscall, count(*) FROM shown_calls GROUP BY ALL ORDER BY ALL"
    numbers = [
        {**when, "asInt": str(n), "attributes": _attributes({"program": comm, "call": call})}
        for comm, call, n in content.rows(counted)
    ]
    metrics = [
        _sum("spoolscope.call.time", "ns", "Time in system calls by what it went into.", times),
        _sum("spoolscope.calls", "{call}", "System calls.", numbers),
    ]
    return {
        "resource": _resource("spoolscope", None),
        "scopeMetrics": [{"scope": SCOPE, "metrics": metrics}],
    }


def _sum(name: str, unit: str, description: str, points: list[dict[str, Any]]) -> dict[str, Any]:
    made = {"dataPoints": points, "aggregationTemporality": CUMULATIVE, "isMonotonic": True}
    return {"name": name, "unit": unit, "description": description, "sum": made}
