"""OTLP as lines of JSON: a span for each call, with its causes, and metrics of all of them."""

import hashlib
import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, TextIO

from spoolscope.analysis.causes import CAUSES
from spoolscope.export.content import Call, Content
from spoolscope.export.folded import BY_CAUSE
from spoolscope.traces.text import shown

LINE_BYTES = 900_000
"""Most bytes of spans or points in a line: the collector accepts no line over 1 MB by default."""
HELD_BYTES = 32_000_000
"""Spans of all processes that are in memory before all are written, in bytes."""
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
            for metric, points in _metrics(content):
                for part in _parts(map(_text, points)):
                    values = {"dataPoints": _LIST, "aggregationTemporality": CUMULATIVE}
                    made = metric | {"sum": values | {"isMonotonic": True}}
                    inner = {"scopeMetrics": [{"scope": SCOPE, "metrics": [made]}]}
                    of_all = {"resource": _resource("spoolscope", None)} | inner
                    _line(file, {"resourceMetrics": [of_all]}, part)
            spans = _Spans(content)
            for resource, part in spans.parts():
                inner = {"scopeSpans": [{"scope": SCOPE, "spans": _LIST}]}
                _line(file, {"resourceSpans": [{"resource": resource} | inner]}, part)


_LIST = ["\x00"]
"""The place of a list of texts in a line; no name can have this character."""


def _line(file: TextIO, value: dict[str, Any], texts: Sequence[str]) -> None:
    before, _, after = _text(value).partition(_text(_LIST[0]))
    file.writelines((before, ",".join(texts), after, "\n"))


def _text(value: Any) -> str:
    return json.dumps(value, separators=(",", ":")).replace("\x7f", "\\u007f")


def _parts(texts: Iterable[str]) -> Iterator[list[str]]:
    """Yield texts in lists that fit in a line."""
    part: list[str] = []
    held = 0
    for text in texts:
        if part and held + len(text) >= LINE_BYTES:
            yield part
            part, held = [], 0
        part.append(text)
        held += len(text) + 1
    if part:
        yield part


class _Spans:
    """The spans: a trace for each call, with its parts as children and a link to its commit."""

    def __init__(self, content: Content) -> None:
        content.find_commits()
        self._content = content
        self._seed = hashlib.sha256(content.trace.identity.encode()).hexdigest()[:16]
        self._commit_of = dict(content.rows(_COMMIT_OF))
        self._n = 0

    def parts(self) -> Iterator[tuple[dict[str, Any], list[str]]]:
        """Yield resources with some of their spans, as JSON."""
        commits = map(self._commit, self._content.rows(_COMMITS))
        for part in _parts(map(_text, commits)):
            yield _resource("journal", None), part
        held: dict[tuple[str, int], list[str]] = defaultdict(list)
        sizes: dict[tuple[str, int], int] = defaultdict(int)
        in_all = 0
        for call in self._content.calls():
            key = call.comm, call.pid
            texts = list(map(_text, self._call(call)))
            size = sum(map(len, texts)) + len(texts)
            held[key] += texts
            sizes[key] += size
            in_all += size
            if sizes[key] >= LINE_BYTES or in_all >= HELD_BYTES:
                for one in [key] if in_all < HELD_BYTES else list(held):
                    in_all -= sizes.pop(one)
                    for part in _parts(held.pop(one)):
                        yield _resource(*one), part
        for one, texts in held.items():
            for part in _parts(texts):
                yield _resource(*one), part

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


_COUNTED = "SELECT comm, syscall, count(*) FROM shown_calls GROUP BY ALL ORDER BY ALL"


def _metrics(content: Content) -> Iterator[tuple[dict[str, str], Iterator[dict[str, Any]]]]:
    """Yield sums with their points: time of calls by program, call and cause, and their number."""
    time = {"name": "spoolscope.call.time", "unit": "ns"}
    time["description"] = "Time in system calls by what it went into."
    yield time, _points(content, BY_CAUSE, ("program", "call", "cause"))
    calls = {"name": "spoolscope.calls", "unit": "{call}", "description": "System calls."}
    yield calls, _points(content, _COUNTED, ("program", "call"))


def _points(content: Content, sql: str, names: Sequence[str]) -> Iterator[dict[str, Any]]:
    start, end = map(str, content.span_ns)
    for *key, n in content.rows(sql):
        attributes = _attributes(dict(zip(names, key, strict=True)))
        yield {
            "startTimeUnixNano": start,
            "timeUnixNano": end,
            "asInt": str(n),
            "attributes": attributes,
        }
