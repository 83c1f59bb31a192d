"""Every export holds all the time of the calls, in a form that its tools accept.

Perfetto's trace processor is a program of 16 MB that no package contains: instead, its input is
read here with Perfetto's own schema, and ``Slices`` applies its rules for slices and flows.
"""

import base64
import csv
import errno
import json
import sqlite3
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import jsonschema
import pytest
from exporting import export
from google.protobuf import json_format
from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData
from opentelemetry.proto.trace.v1.trace_pb2 import TracesData
from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as perfetto
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from spoolscope.analysis.causes import CAUSES
from spoolscope.analysis.explain import explain
from spoolscope.analysis.selection import Selection
from spoolscope.export.formats import EXPORTERS
from spoolscope.export.tables import errors_of_the_disk
from spoolscope.traces.errors import SpoolscopeError
from spoolscope.traces.schema import TABLES
from spoolscope.traces.slices import parse_slice
from spoolscope.traces.trace import Trace

SAMPLE = Path(__file__).parents[3] / "traces/samples/postfix-dovecot"
SPEEDSCOPE = json.loads((Path(__file__).parent / "speedscope-schema.json").read_text())
LABELS = {cause.label: name for name, cause in CAUSES.items()}
MS = 1_000_000

# Content of an export: ns by call, and ns by cause.
Sums = tuple[Counter[str], Counter[str]]


class Slices:
    """Slices of tracks, made from packets in order of time, as by the trace processor."""

    def __init__(self, file: Path) -> None:
        trace = perfetto.Trace.FromString(file.read_bytes())
        self.tracks = {p.track_descriptor.uuid: p.track_descriptor for p in trace.packet
                       if p.HasField("track_descriptor")}  # fmt: skip
        self.snapshots = [p.clock_snapshot for p in trace.packet if p.HasField("clock_snapshot")]
        self.all: list[dict] = []
        self.counts: dict[int, list[tuple[int, int]]] = defaultdict(list)
        self._names: dict[str, dict[int, str]] = defaultdict(dict)
        open_: dict[int, list[dict]] = defaultdict(list)
        for packet in trace.packet:
            self._intern(packet)
        events = [p for p in trace.packet if p.HasField("track_event")]
        assert all(p.sequence_flags == 2 and p.trusted_packet_sequence_id == 1 for p in events)
        for packet in sorted(events, key=lambda p: p.timestamp):  # stable, as there
            event, at = packet.track_event, packet.timestamp
            assert event.track_uuid in self.tracks
            stack = open_[event.track_uuid]
            if event.type == perfetto.TrackEvent.TYPE_SLICE_BEGIN:
                stack.append(self._begun(event, at, stack))
            elif event.type == perfetto.TrackEvent.TYPE_SLICE_END:
                ended = stack.pop()
                ended["dur"] = at - ended["ts"]
                self.all.append(ended)
            else:
                self.counts[event.track_uuid].append((at, event.counter_value))
        assert not any(open_.values())

    def _intern(self, packet) -> None:
        for kind in ("event_names", "debug_annotation_names", "debug_annotation_string_values"):
            for item in getattr(packet.interned_data, kind):
                assert item.iid not in self._names[kind]
                text = item.name if hasattr(item, "name") else item.str.decode()
                self._names[kind][item.iid] = text

    def _begun(self, event, at: int, stack: list[dict]) -> dict:
        args = {}
        for arg in event.debug_annotations:
            field = arg.WhichOneof("value")
            value = getattr(arg, field)
            if field == "string_value_iid":
                value = self._names["debug_annotation_string_values"][value]
            args[self._names["debug_annotation_names"][arg.name_iid]] = value
        return {"name": self._names["event_names"][event.name_iid], "ts": at, "args": args,
                "flows": list(event.flow_ids), "track": event.track_uuid,
                "above": [slice_["name"] for slice_ in stack]}  # fmt: skip

    def of_threads(self) -> Iterator[dict]:
        for slice_ in self.all:
            track = self.tracks[slice_["track"]]
            parent = self.tracks.get(track.parent_uuid)
            if track.HasField("thread") or (parent and parent.HasField("thread")):
                yield slice_


def of_perfetto(out: Path) -> Sums:
    calls: Counter[str] = Counter()
    causes: Counter[str] = Counter()
    for slice_ in Slices(out).of_threads():
        if slice_["above"]:
            causes[LABELS[slice_["name"]]] += slice_["dur"]
        else:
            calls[slice_["name"]] += slice_["dur"]
    return calls, with_cpu(calls, causes)


def with_cpu(calls: Counter[str], causes: Counter[str]) -> Counter[str]:
    """Add the time that no slice inside a call covers, as CPU time."""
    return causes + Counter(cpu=calls.total() - causes.total())


def of_speedscope(out: Path) -> Sums:
    file = json.loads(out.read_text())
    jsonschema.validate(file, SPEEDSCOPE)
    frames = [frame["name"] for frame in file["shared"]["frames"]]
    calls: Counter[str] = Counter()
    causes: Counter[str] = Counter()
    for profile in file["profiles"]:
        stack: list[tuple[int, int]] = []
        last = profile["startValue"]
        for event in profile["events"]:
            assert last <= event["at"] <= profile["endValue"]
            last = event["at"]
            if event["type"] == "O":
                stack.append((event["frame"], last))
                continue
            frame, since = stack.pop()
            assert frame == event["frame"]
            if stack:
                causes[LABELS[frames[frame]]] += last - since
            else:
                calls[frames[frame]] += last - since
        assert not stack
    return calls, with_cpu(calls, causes)


def of_folded(out: Path) -> Sums:
    calls: Counter[str] = Counter()
    causes: Counter[str] = Counter()
    for line in out.read_text().splitlines():
        stack, ns = line.rsplit(" ", 1)
        _, call, cause = stack.split(";")
        calls[call] += int(ns)
        causes[cause] += int(ns)
    return calls, causes


def of_openmetrics(out: Path) -> Sums:
    calls: Counter[str] = Counter()
    causes: Counter[str] = Counter()
    for family in text_string_to_metric_families(out.read_text()):
        for sample in family.samples:
            if sample.name == "spoolscope_call_duration_seconds_sum":
                calls[sample.labels["call"]] += round(sample.value * 1e9)
            if sample.name == "spoolscope_call_time_seconds_total":
                causes[sample.labels["cause"]] += round(sample.value * 1e9)
    return calls, causes


def of_csv(out: Path) -> Sums:
    def rows(name: str) -> Iterator[dict[str, str]]:
        with (out / f"{name}.csv").open(newline="") as file:
            yield from csv.DictReader(file)

    return added(
        ((row["syscall"], int(row["dur_ns"])) for row in rows("syscalls")),
        ((row["cause"], int(row["ns"])) for row in rows("call_causes")),
    )


def of_sqlite(out: Path) -> Sums:
    base = sqlite3.connect(out)
    sums = added(
        base.execute("SELECT syscall, dur_ns FROM syscalls"),
        base.execute("SELECT cause, ns FROM call_causes"),
    )
    base.close()
    return sums


def added(calls, causes) -> Sums:
    sums: Sums = Counter(), Counter()
    for counter, rows in zip(sums, (calls, causes), strict=True):
        for name, ns in rows:
            counter[name] += ns
    return sums


def spans(out: Path) -> Iterator[dict]:
    for line in out.read_text().splitlines():
        for resource in json.loads(line).get("resourceSpans", ()):
            yield from resource["scopeSpans"][0]["spans"]


def of_otlp(out: Path) -> Sums:
    calls: Counter[str] = Counter()
    causes: Counter[str] = Counter()
    for span in spans(out):
        ns = int(span["endTimeUnixNano"]) - int(span["startTimeUnixNano"])
        keys = {item["key"]: item["value"] for item in span["attributes"]}
        if "spoolscope.cause" in keys:
            causes[keys["spoolscope.cause"]["stringValue"]] += ns
        elif "thread.id" in keys:
            calls[span["name"]] += ns
    return calls, with_cpu(calls, causes)


READERS: dict[str, Callable[[Path], Sums]] = {
    "perfetto": of_perfetto,
    "speedscope": of_speedscope,
    "folded": of_folded,
    "openmetrics": of_openmetrics,
    "csv": of_csv,
    "sqlite": of_sqlite,
    "otlp": of_otlp,
}
OF_TIME = ("perfetto", "speedscope", "otlp")
"""Formats that show when calls ran, which cannot show the time that the host took."""
PARTS: dict[str, tuple[list[str], Selection]] = {
    "all": ([], Selection()),
    "a part": (
        ["--slice", "2s..3s", "--except", "imap"], Selection((), ("imap",), parse_slice("2s..3s"))
    ),
}  # fmt: skip


def expected(trace: Path, selection: Selection, name: str) -> Sums:
    found = explain(trace, selection=selection)
    assert found.split.sum_error_ns == 0
    causes = Counter(found.causes)
    if name in OF_TIME:
        causes["cpu"] += causes.pop("steal", 0)
    return Counter({call: t.latency.total_ns for call, t in found.by_syscall.items()}), causes


def test_every_format_of_calls_is_read_here() -> None:
    assert list(EXPORTERS) == [*READERS, "fio", "fio-files"]


def test_a_full_disk_is_one_for_sqlite_too(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "base")) as base:
        base.execute("PRAGMA max_page_count = 2")
        with (
            pytest.raises(OSError, match="No space left") as error,
            errors_of_the_disk(tmp_path / "base"),
        ):
            base.execute("CREATE TABLE a AS SELECT randomblob(100000) AS b")
    assert error.value.errno == errno.ENOSPC


@pytest.mark.slow
@pytest.mark.parametrize("name", READERS)
def test_no_nanosecond_is_lost(name: str, kitchen_sink: Path, tmp_path: Path) -> None:
    result = export(kitchen_sink, name, tmp_path / "out", "--json")
    assert READERS[name](tmp_path / "out") == expected(kitchen_sink, Selection(), name)
    told = json.loads(result.stdout)
    assert told["latency_ns"] == READERS[name](tmp_path / "out")[0].total()


@pytest.mark.slow
@pytest.mark.parametrize("name", READERS)
def test_no_nanosecond_of_a_part_of_the_sample_is_lost(name: str, tmp_path: Path) -> None:
    words, selection = PARTS["a part"]
    export(SAMPLE, name, tmp_path / "out", *words)
    assert READERS[name](tmp_path / "out") == expected(SAMPLE, selection, name)


@pytest.mark.slow
@pytest.mark.parametrize("name", READERS)
def test_calls_whose_intervals_are_not_all_known(name: str, builder, tmp_path: Path) -> None:
    """Check lost segments, overlapping ones, and calls that overlap in their thread."""
    stack = "schedule < jbd2_log_wait_commit < ext4_sync_file"
    builder.call("fsync", 0, 1000, ((None, MS), (None, 5)), runq_ns=700, preempted_ns=30)
    builder.call("fsync", 5 * MS, 1000, ((stack, MS), (None, 5)), runq_ns=700)
    builder.call("write", 6 * MS, 3 * MS, tid=7)
    builder.call("write", 7 * MS, 5 * MS, ((stack, 9),), tid=7)
    builder.call("read", 8 * MS, 1, tid=7)
    builder.call("close", 9 * MS, 0, tid=8)
    trace = builder.write()
    export(trace, name, tmp_path / "out")
    assert READERS[name](tmp_path / "out") == expected(trace, Selection(), name)


def test_perfetto_joins_waits_to_commits_and_requests(builder, tmp_path: Path) -> None:
    stack = "schedule < jbd2_log_wait_commit < ext4_sync_file"
    waited = builder.call("fsync", MS, 1000, ((stack, 4 * MS),), dev=1, path="box/new/1")
    builder.call("read", 9 * MS, 1000, tid=101, dev=1, errno=5, ret=-1)
    builder.commit(2 * MS, 2 * MS, dev=1)
    builder.sleep(2 * MS, MS, "io_schedule < jbd2_journal_commit_transaction")
    builder.block_io(2 * MS + 10, 1000, MS)
    builder.block_io(9 * MS, 1, 2, pid=101, tid=101, seq=0, op="read", comm="imap")
    export(builder.write(), "perfetto", tmp_path / "out")
    slices = Slices(tmp_path / "out")
    joined = defaultdict(list)
    for slice_ in slices.all:
        for flow in slice_["flows"]:
            joined[flow].append((slice_["name"], *slice_["above"]))
    assert sorted(map(sorted, joined.values())) == [
        [("jbd2_commit",), ("journal commit", "fsync")],
        [("jbd2_commit",), ("write",)],
        [("read",), ("read",)],
    ]
    (call,) = [s for s in slices.all if s["name"] == "fsync"]
    assert (call["ts"], call["args"]["path"]) == (waited["ts_ns"], "box/new/1")
    assert call["args"]["ret"] == 0
    assert [s["args"].get("errno") for s in slices.of_threads() if s["name"] == "read"] == [5]
    names = {
        t.name or t.thread.thread_name or t.process.process_name for t in slices.tracks.values()
    }
    assert {"commits of ext4 /spool", "disk 0:1", "lmtp", "block requests under way"} <= names
    assert [{(c.clock_id, c.timestamp) for c in s.clocks} for s in slices.snapshots] == [
        {(1, 1_700_000_000_000_000_000), (6, 1_700_000_000_000_000_000)}
    ]


@pytest.mark.parametrize("name", READERS)
def test_a_trace_of_disks_alone(name: str, builder, tmp_path: Path) -> None:
    at = 1_700_000_000_000_000_000
    for n, done in enumerate((1000, None)):
        builder.add("block_stages", ts_ns=at + n, op="write", rwbs="WS", tid=7, bytes=4096, g_ns=1,
                     i_ns=2, d_ns=3, c_ns=done, dev=8 << 20, comm="x")  # fmt: skip
    export(builder.write(), name, tmp_path / "out")
    assert READERS[name](tmp_path / "out") == (Counter(), Counter(cpu=0) if name in OF_TIME else {})
    if name == "perfetto":
        slices = Slices(tmp_path / "out")
        told = {(s["name"], s["dur"]) for s in slices.all}
        assert told == {("write", 1000), ("queue", 3), ("device", 997), ("write", 3), ("device", 0)}
        assert "disk 8:0, by blktrace" in {t.name for t in slices.tracks.values()}


def test_perfetto_counts_what_is_under_way(kitchen_sink: Path, tmp_path: Path) -> None:
    export(kitchen_sink, "perfetto", tmp_path / "out")
    slices = Slices(tmp_path / "out")
    counters = {t.name: slices.counts[uuid] for uuid, t in slices.tracks.items()
                if t.HasField("counter")}  # fmt: skip
    assert set(counters) == {"calls that are blocked", "block requests under way"}
    assert all(
        counts[-1][1] == 0 and min(n for _, n in counts) == 0 for counts in counters.values()
    )
    assert max(n for _, n in counters["calls that are blocked"]) >= 1


def test_openmetrics_has_buckets_units_and_an_end(kitchen_sink: Path, tmp_path: Path) -> None:
    export(kitchen_sink, "openmetrics", tmp_path / "out")
    text = (tmp_path / "out").read_text()
    families = {family.name: family for family in text_string_to_metric_families(text)}
    calls = families["spoolscope_call_duration_seconds"]
    assert (calls.type, calls.unit) == ("histogram", "seconds")
    counts = [s.value for s in calls.samples if s.name.endswith("_count")]
    assert sum(counts) == Trace.open(kitchen_sink).meta["counts"]["syscalls"]
    buckets = [s for s in calls.samples if s.name.endswith("_bucket")]
    ends = [s.value for s in buckets if s.labels["le"] == "+Inf"]
    assert ends == counts
    assert families["spoolscope_block_request_size_bytes"].type == "counter"
    assert text.endswith("# EOF\n")
    assert {s.timestamp.sec for s in calls.samples} == {1_700_000_001}


def test_a_call_lies_in_the_bucket_of_its_length(builder, tmp_path: Path) -> None:
    for ns in (999, 1000, 1001, 60 * 10**9):
        builder.call("read", 0, ns)
    export(builder.write(), "openmetrics", tmp_path / "out")
    below = {s.labels["le"]: s.value
             for f in text_string_to_metric_families((tmp_path / "out").read_text())
             for s in f.samples if s.name == "spoolscope_call_duration_seconds_bucket"}  # fmt: skip
    assert (below["1e-06"], below["2e-06"], below["50"], below["+Inf"]) == (2, 3, 3, 4)


def test_otlp_is_what_its_schema_says(kitchen_sink: Path, tmp_path: Path) -> None:
    export(kitchen_sink, "otlp", tmp_path / "out")
    lines = (tmp_path / "out").read_text().splitlines()
    metrics = json_format.Parse(lines[0], MetricsData())
    points = metrics.resource_metrics[0].scope_metrics[0].metrics[0].sum.data_points
    assert sum(point.as_int for point in points) == explain(kitchen_sink).latency_ns
    found = {}
    assert ["resourceMetrics" in line for line in lines[:3]] == [True, True, False]
    for line in lines[2:]:
        data = json.loads(line)
        for span in (s for r in data["resourceSpans"] for s in r["scopeSpans"][0]["spans"]):
            for place in (span, *span.get("links", ())):  # OTLP spells ids in hex, protobuf not
                for key in {"traceId", "spanId", "parentSpanId"} & set(place):
                    place[key] = base64.b64encode(bytes.fromhex(place[key])).decode()
        for resource in json_format.ParseDict(data, TracesData()).resource_spans:
            found |= {s.span_id: s for s in resource.scope_spans[0].spans}
    assert {len(s.trace_id) for s in found.values()} == {16}
    assert len(found) == sum(1 for _ in spans(tmp_path / "out"))
    children = [s for s in found.values() if s.parent_span_id]
    assert all(found[s.parent_span_id].trace_id == s.trace_id for s in children)
    links = [link for s in children for link in s.links]
    assert links
    assert {found[link.span_id].name for link in links} <= {"jbd2_commit", "xfs_log_force"}


@pytest.mark.parametrize("of_one", [True, False])
def test_no_line_of_otlp_is_too_long_for_the_collector(of_one, builder, tmp_path: Path) -> None:
    """Its limit is 1 MB; here long paths, and one call with very many waits, would be more."""
    if of_one:
        waits = [(f"schedule < jbd2_log_wait_commit < ext4_sync_file_{n}", 10) for n in range(4000)]
        builder.call("fsync", 0, MS, waits)
    else:
        for n in range(600):
            builder.call("stat", n * 10, 1, path=f"{n}" + "/long" * 700)
    trace = builder.write()
    export(trace, "otlp", tmp_path / "out")
    lines = (tmp_path / "out").read_text().splitlines()
    assert max(map(len, lines)) < 1_000_000
    assert len(lines) >= 4
    assert of_otlp(tmp_path / "out") == expected(trace, Selection(), "otlp")


def test_sums_of_a_slice_have_its_time(kitchen_sink: Path, tmp_path: Path) -> None:
    export(kitchen_sink, "otlp", tmp_path / "out", "--slice", "200ms..500ms")
    metric = json.loads((tmp_path / "out").read_text().splitlines()[0])["resourceMetrics"][0]
    point = metric["scopeMetrics"][0]["metrics"][0]["sum"]["dataPoints"][0]
    start_ns = Trace.open(kitchen_sink).meta["start_ns"]
    assert int(point["startTimeUnixNano"]) - start_ns == 200 * MS
    assert int(point["timeUnixNano"]) - start_ns == 500 * MS


def test_what_no_call_owns_is_not_exported_for_some_calls(
    kitchen_sink: Path, tmp_path: Path
) -> None:
    with pytest.raises(SpoolscopeError, match="fio gets requests of a disk"):
        export(kitchen_sink, "fio", tmp_path / "fio", "--only", "imap")
    for words, has in (([], True), (["--slice", "0s..500ms"], True), (["--except", "imap"], False)):
        export(kitchen_sink, "openmetrics", tmp_path / "out", "-f", *words)
        assert ("spoolscope_block_request" in (tmp_path / "out").read_text()) == has


@pytest.mark.parametrize("name", ["csv", "sqlite"])
def test_tables_are_whole(name: str, kitchen_sink: Path, tmp_path: Path) -> None:
    export(kitchen_sink, name, tmp_path / "out")
    trace = Trace.open(kitchen_sink)
    for table in TABLES:
        rows = trace.table(table).to_pylist()
        if name == "sqlite":
            base = sqlite3.connect(tmp_path / "out")
            base.row_factory = sqlite3.Row
            found = [dict(row) for row in base.execute(f"SELECT * FROM {table}")]
            base.close()
            assert sorted(map(str, rows)) == sorted(
                str({k: bool(v) if isinstance(rows[0][k], bool) and v is not None else v
                     for k, v in row.items()}) for row in found
            )  # fmt: skip
        else:
            with (tmp_path / "out" / f"{table}.csv").open(newline="") as file:
                assert sum(1 for _ in csv.DictReader(file)) == len(rows)
    if name == "csv":
        told = list(csv.DictReader((tmp_path / "out/columns.csv").read_text().splitlines()))
        assert {row["unit"] for row in told if row["column"].endswith("dur_ns")} == {"ns"}


@pytest.mark.parametrize("name", ["folded", "openmetrics", "csv", "speedscope", "otlp"])
def test_no_text_drives_a_terminal(name: str, kitchen_sink: Path, tmp_path: Path) -> None:
    export(kitchen_sink, name, tmp_path / "out")
    files = [tmp_path / "out"] if (tmp_path / "out").is_file() else (tmp_path / "out").iterdir()
    for file in files:
        text = file.read_text()
        assert all(c == "\n" or c.isprintable() for c in text), file


@pytest.mark.parametrize("name", READERS)
def test_what_shows_real_names_is_private(name: str, builder, tmp_path: Path) -> None:
    builder.call("fsync", 1, path="alice")
    trace = builder.write(pseudonymised=False)
    export(trace, name, tmp_path / "out")
    files = [tmp_path / "out", *(tmp_path / "out").glob("*")]
    assert {file.stat().st_mode & 0o077 for file in files} == {0}
    assert [f.name for f in tmp_path.iterdir() if f.name.startswith(".")] == []


def test_a_failure_leaves_nothing(kitchen_sink: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    with pytest.raises(SpoolscopeError, match="no call is of a process"):
        export(kitchen_sink, "folded", out, "--only", "nobody")
    with pytest.raises(SpoolscopeError, match="no such directory"):
        export(kitchen_sink, "folded", tmp_path / "no/out")
    assert [f.name for f in tmp_path.iterdir() if f.name != "trace"] == []
    out.write_text("mine")
    with pytest.raises(SpoolscopeError, match="exists"):
        export(kitchen_sink, "folded", out)
    export(kitchen_sink, "folded", out, "--force")
    assert out.read_text() != "mine"
