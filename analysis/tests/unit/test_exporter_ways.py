"""The ways in which metrics leave: HTTP, textfile and OTLP, each read by what it is for."""

import json
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from click.testing import CliRunner
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsPartialSuccess,
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)
from opentelemetry.proto.metrics.v1.metrics_pb2 import AGGREGATION_TEMPORALITY_CUMULATIVE
from prometheus_client.parser import text_string_to_metric_families
from rollup_scenes import MS, Calls, Commits, Minute

from spoolscope.cli.main import group
from spoolscope.exporter import catalogue as of
from spoolscope.exporter.follower import Follower
from spoolscope.exporter.handing_on import Running, Ways
from spoolscope.exporter.otlp_push import HEADERS, push
from spoolscope.exporter.scraped import Page, serving
from spoolscope.traces.errors import SpoolscopeError

pytestmark = pytest.mark.slow

NOW_S = int(time.time()) // 60 * 60
USUAL = Minute((Calls(10, 3 * MS, waits={"flush": MS}), Calls(7, 900, "read")), (Commits(4),))
WAIT_S = 20


def started(*words: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "spoolscope.cli.main", "exporter", *words]
    return subprocess.Popen(command, stderr=subprocess.PIPE, text=True)


def ended(process: subprocess.Popen[str]) -> tuple[int, str]:
    process.send_signal(signal.SIGTERM)
    _, said = process.communicate(timeout=WAIT_S)
    return process.returncode, said


class Receiver(HTTPServer):
    """An OTLP receiver: what it got, decoded by the official classes, and how it answers."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Received)
        self.got: list[ExportMetricsServiceRequest] = []
        self.headers: list[dict[str, str]] = []
        self.status, self.answer, self.more = 200, b"", {}

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/v1/metrics"


class _Received(BaseHTTPRequestHandler):
    server: Receiver

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.got.append(ExportMetricsServiceRequest.FromString(body))
        headers = {name.lower(): value for name, value in self.headers.items()}
        self.server.headers.append({**headers, "path": self.path})
        self.send_response(self.server.status)
        for name, value in self.server.more.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(self.server.answer)))
        self.end_headers()
        self.wfile.write(self.server.answer)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver() as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


@contextmanager
def exporting(root: Path, **ways) -> Iterator[tuple[Running, list[str]]]:
    said: list[str] = []
    yield Running(Follower(root, "mail1", said.append), 20, Ways(**ways), said.append), said


def points(request: ExportMetricsServiceRequest) -> dict[str, list]:
    (resource,) = request.resource_metrics
    (scope,) = resource.scope_metrics
    return {m.name: list(getattr(m, m.WhichOneof("data")).data_points) for m in scope.metrics}


def labels(point) -> dict[str, str]:
    return {a.key: a.value.string_value for a in point.attributes}


def test_a_receiver_gets_all_metrics(tmp_path: Path, receiver: Receiver) -> None:
    before_ns = time.time_ns()
    with exporting(tmp_path, otlp=receiver.url) as (running, said):
        USUAL.write(tmp_path, NOW_S, 0)
        running.look()
        running.look()  # nothing new: nothing is sent
    assert said == []
    first, request = receiver.got
    assert receiver.headers[0]["content-type"] == "application/x-protobuf"
    assert receiver.headers[0]["path"] == "/v1/metrics"
    attributes = request.resource_metrics[0].resource.attributes
    assert {a.key: a.value.string_value for a in attributes} == {
        "service.name": "spoolscope", "host.name": "mail1"
    }  # fmt: skip
    metrics = {m.name: m for m in request.resource_metrics[0].scope_metrics[0].metrics}
    assert set(metrics) == {metric.otlp[0] for metric in of.METRICS}
    commits = metrics["spoolscope.commits"]
    assert (commits.unit, commits.sum.is_monotonic) == ("{commit}", True)
    assert commits.sum.aggregation_temporality == AGGREGATION_TEMPORALITY_CUMULATIVE
    assert {labels(p)["program"]: p.as_int for p in commits.sum.data_points} == {
        "lmtp": 4, "timer": 0
    }  # fmt: skip
    times = {labels(p)["cause"]: p.as_double for p in points(request)["spoolscope.call_time"]}
    assert times["flush"] == 0.01
    length = metrics["spoolscope.call_duration"]
    assert (length.unit, length.histogram.aggregation_temporality) == ("s", 2)
    for point in length.histogram.data_points:
        assert len(point.bucket_counts) == len(point.explicit_bounds) + 1
        assert sum(point.bucket_counts) == point.count
        assert before_ns <= point.start_time_unix_nano < point.time_unix_nano
    (syncs,) = (p for p in length.histogram.data_points if p.count == 10)
    (at,) = (at for at, n in enumerate(syncs.bucket_counts) if n)
    assert syncs.explicit_bounds[at - 1] < 0.003 <= syncs.explicit_bounds[at]
    assert syncs.sum == 0.03
    starts = {
        p.start_time_unix_nano for r in (first, request) for p in points(r)["spoolscope.calls_met"]
    }
    assert len(starts) == 1


def test_a_receiver_that_fails_is_said_once_and_gets_all_later(
    tmp_path: Path, receiver: Receiver
) -> None:
    receiver.status = 503
    with exporting(tmp_path, otlp=receiver.url) as (running, said):
        for seq in range(2):
            USUAL.write(tmp_path, NOW_S + 60 * seq, seq)
            running.look()
        assert len(said) == 1
        assert "it answers 503 Service Unavailable; tried again every 60 s, no count" in said[0]
        receiver.status = 200
        USUAL.write(tmp_path, NOW_S + 120, 2)
        running.look()
    assert said[1:] == [f"{receiver.url}: it works again"]
    assert sum(p.as_int for p in points(receiver.got[-1])["spoolscope.commits"]) == 12


def test_what_a_receiver_leaves_out_is_an_error(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(HEADERS, "Authorization=Bearer%20abc, x-tenant=mail")
    push(receiver.url, b"")
    assert receiver.headers[-1]["authorization"] == "Bearer abc"
    assert receiver.headers[-1]["x-tenant"] == "mail"
    part = ExportMetricsPartialSuccess(rejected_data_points=3, error_message="old")
    receiver.answer = ExportMetricsServiceResponse(partial_success=part).SerializeToString()
    with pytest.raises(ValueError, match="only a part"):
        push(receiver.url, b"")
    receiver.status, receiver.more = 302, {"Location": "http://127.0.0.1:1/"}
    with pytest.raises(ValueError, match="302"):
        push(receiver.url, b"")
    with socket.create_server(("127.0.0.1", 0)) as server:
        nobody = f"http://127.0.0.1:{server.getsockname()[1]}/v1/metrics"
    with pytest.raises(OSError, match="refused"):
        push(nobody, b"")


def test_textfile_is_replaced_as_a_whole(tmp_path: Path) -> None:
    file, root = tmp_path / "spool.prom", tmp_path / "r"
    root.mkdir()
    with exporting(root, textfile=file) as (running, said):
        before = file.stat().st_ino
        USUAL.write(root, NOW_S, 0)
        running.look()
        families = {f.name: f for f in text_string_to_metric_families(file.read_text())}
        assert sum(s.value for s in families["spoolscope_commits"].samples) == 4
        # The collector refuses a whole file with timestamps.
        assert all(s.timestamp is None for f in families.values() for s in f.samples)
        assert file.stat().st_ino != before
        assert [p.name for p in tmp_path.iterdir() if p.is_file()] == ["spool.prom"]
        file.unlink()
        tmp_path.rename(tmp_path.with_name("moved"))
        running.look()
        tmp_path.with_name("moved").rename(tmp_path)
    assert "is gone" in said[0]
    assert said[1].startswith(f"{file}: ")


def test_the_command_serves_until_it_is_ended(tmp_path: Path) -> None:
    USUAL.write(tmp_path, NOW_S, 0)
    process = started(str(tmp_path), "--listen", "127.0.0.1:0")
    assert process.stderr is not None
    url = process.stderr.readline().split()[-1]
    for accept, form in (
        ("application/openmetrics-text;version=1.0.0,text/plain;q=0.5", "application/openmetrics"),
        ("*/*", "text/plain; version=0.0.4"),
    ):
        asked = urllib.request.Request(url, headers={"Accept": accept})
        with urllib.request.urlopen(asked) as answer:
            assert answer.headers["Content-Type"].startswith(form)
            assert answer.read().endswith(b"# EOF\n") == form.startswith("application")
    with pytest.raises(urllib.error.HTTPError, match="404"):
        urllib.request.urlopen(url + "x")
    again = started(str(tmp_path), "--listen", url.split("/")[2])
    assert again.wait(WAIT_S) == 1
    assert again.stderr is not None
    assert again.stderr.read() == (
        f"spoolscope: error: {url.split('/')[2]} is in use; "
        "give another --listen, or end what listens there\n"
    )
    again.stderr.close()
    assert ended(process)[0] == 0


def test_a_client_that_says_nothing_keeps_no_other_waiting() -> None:
    page = Page()
    with serving("127.0.0.1:0", page) as port:
        silent = [socket.create_connection(("127.0.0.1", port)) for _ in range(20)]
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as answer:
            assert answer.status == 200
        for one in silent:
            one.close()


@pytest.mark.parametrize("address", ["9766", "localhost:9766", "1.2.3.4:x", "1.2.3.4:70000", ""])
def test_no_address_is_a_usage_error(address: str) -> None:
    with pytest.raises(SpoolscopeError, match="is no address") as error, serving(address, Page()):
        pass
    assert error.value.exit_code == 2


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "no directory given"),
        (["{dir}", "--textfile", "a.txt"], "does not end in .prom"),
        (["{dir}", "--otlp", "receiver:4318"], "is no URL of an OTLP receiver"),
        (["{dir}/none"], "is no directory"),
    ],
)
def test_wrong_usage_is_one_line(tmp_path: Path, words: list[str], message: str) -> None:
    given = [word.format(dir=tmp_path) for word in words]
    done = CliRunner().invoke(group, ["exporter", *given], standalone_mode=False)
    assert isinstance(done.exception, SpoolscopeError)
    assert message in done.exception.message


def test_files_are_written_and_replaced_only_by_force(tmp_path: Path) -> None:
    rules, dashboard = tmp_path / "rules.yml", tmp_path / "spool.json"
    words = ["exporter", "--write-rules", str(rules), "--write-dashboard", str(dashboard)]
    done = CliRunner().invoke(group, words)
    assert done.stdout == f"Wrote {dashboard}\nWrote {rules}\n"
    assert json.loads(dashboard.read_text())["title"] == "Spoolscope"
    assert "alert: SpoolscopeCommitStorm" in rules.read_text()
    again = CliRunner().invoke(group, words, standalone_mode=False)
    assert isinstance(again.exception, SpoolscopeError)
    assert CliRunner().invoke(group, [*words, "--force"]).exit_code == 0


def test_once_prints_all_that_is_there(tmp_path: Path) -> None:
    for seq in range(3):
        USUAL.write(tmp_path, NOW_S - 10 * 86_400 + 60 * seq, seq)
    done = CliRunner().invoke(group, ["exporter", str(tmp_path), "--once"])
    assert 'spoolscope_commits_total{dev="8:1",program="lmtp"} 12\n' in done.stdout
    assert done.stdout.endswith("# EOF\n")


@pytest.mark.parametrize("at", [None, 100])
def test_once_leaves_damaged_roll_ups_out_and_counts_them(tmp_path: Path, at: int | None) -> None:
    for seq in range(3):
        marker = USUAL.write(tmp_path, NOW_S + 60 * seq, seq)
    calls = Path(str(marker).replace("/minutes/", "/calls/"))
    content = bytearray(calls.read_bytes())
    content[len(content) // 2] ^= 1
    calls.write_bytes(content[:at])
    done = CliRunner().invoke(group, ["exporter", str(tmp_path), "--once"])
    assert done.exit_code == 0
    assert 'spoolscope_commits_total{dev="8:1",program="lmtp"} 8\n' in done.stdout
    assert 'spoolscope_rollup_flushes_total{outcome="read"} 2\n' in done.stdout
    assert 'spoolscope_rollup_flushes_total{outcome="refused"} 1\n' in done.stdout
    assert "Damaged flushes: 1; their rows are left out. The first: " in done.stderr
