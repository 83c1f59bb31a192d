"""A trace of disks alone: the facts in info, explain and report, and those left out."""

import json

import pytest
from click.testing import CliRunner
from spoolscope_testing.trace_builder import START

from spoolscope.analysis.disk_traces import study_disks
from spoolscope.cli.main import group
from spoolscope.cli.selecting import selected
from spoolscope.traces.errors import SpoolscopeError
from spoolscope.traces.trace import Trace

MS = 1_000_000
SAID = (
    "10 writes of disk 0:1",
    "wait longer to be issued",
    "Cache flushes: 1, 30.0 ms in sum",
    "Failed: 1 of 1 reads of disk 0:1",
    "there are no calls",
)


@pytest.fixture
def disks(builder):
    """Make ten writes, all but one in order, two at a time; a read; a flush; one failed."""
    for n in range(10):
        place, took = 5000 if n == 5 else 8 * n, 10 * MS if n < 9 else 20 * MS
        last = {"fua": n == 9, "sync": True, "comm": "<b>writer"}
        builder.block_io(n * 10 * MS, MS, took, sector=place, **last)
    builder.block_io(500 * MS, 4 * MS, 2 * MS, op="read", sector=4000, comm="reader", error=-5)
    builder.block_io(600 * MS, 0, 30 * MS, op="flush", bytes=0, comm="kworker/0:1H")
    builder.rows["block_stages"] = [{"ts_ns": 0, "c_ns": 1}] * 12 + [{"ts_ns": 0}]
    return builder.write(imported={"from": "blktrace", "events": 70, "whole": True, "lost": 0})


def run(*arguments):
    return CliRunner().invoke(group, [str(a) for a in arguments], standalone_mode=False)


def test_sums(disks):
    found = study_disks(Trace.open(disks))
    write, flush, read = found.kinds
    assert (write.op, write.n, write.bytes, write.fua) == ("write", 10, 40960, 1)
    assert write.sequential == pytest.approx(7 / 9)
    assert (write.device.median, write.device.max) == (10 * MS, 20 * MS)
    assert write.device.p99 is None
    assert (flush.device.max, read.queue.mean, read.errors) == (30 * MS, 4 * MS, 1)
    assert found.busy_ns == {"0:1": (110 + 2 + 30) * MS}
    assert found.unfinished == 1
    assert next(one.comm for one in found.submitters) == "<b>writer"


@pytest.mark.usefixtures("disks")
def test_a_part_of_its_time(builder, tmp_path):
    builder.rows["block_stages"] = [
        {"ts_ns": START + n * 10 * MS, "c_ns": 11 * MS if n < 9 else None, "op": "write",
         "rwbs": "W", "bytes": 4096, "sector": n} for n in range(10)
    ]  # fmt: skip
    path = builder.write(duration_ns=700 * MS)
    found = study_disks(Trace.open(path), selected((), (), "495ms..550ms"))
    assert [(kind.op, kind.n) for kind in found.kinds] == [("read", 1)]
    assert (found.duration_ns, found.unfinished) == (55 * MS, 0)
    first = study_disks(Trace.open(path), selected((), (), "0s..95ms"))
    assert [(kind.op, kind.n) for kind in first.kinds] == [("write", 10)]
    assert first.unfinished == 1
    said = json.loads(run("explain", path, "--slice", "495ms..550ms", "--json").stdout)
    assert said["requests"] == 1
    said = json.loads(run("explain", path, "--slice", "25ms..45ms", "--json").stdout)
    assert said["busy_ns"] == {"0:1": 20 * MS}
    export = ("export", path, "--to", "fio", "-o", tmp_path / "log", "--slice", "25ms..45ms")
    assert run(*export).exception is None
    assert (tmp_path / "log").read_text().count(" write ") == 3  # one was under way
    error = run("explain", path, "--only", "reader").exception
    assert "has no calls" in error.message


@pytest.mark.parametrize(
    ("unread", "said"),
    [
        (0, "No cache flush was asked for."),
        (1234, "No cache flush was seen; 1,234 lines could not be read."),
    ],
)
def test_no_flush_is_not_said_of_lines_that_could_not_be_read(builder, unread: int, said: str):
    builder.block_io(0, MS, MS)
    builder.rows["block_stages"] = [{"ts_ns": 0, "c_ns": 1}]
    facts = {"from": "ftrace", "events": 5, "whole": True, "lost": 0, "not_understood": unread}
    explained = run("explain", builder.write(imported=facts)).stdout
    assert said in " ".join(explained.split())


@pytest.mark.parametrize(("n", "said"), [(1, False), (19, False), (20, True)])
def test_a_share_of_few_requests_is_not_said(builder, n, said):
    for i in range(n):
        builder.block_io(i * 10 * MS, MS, MS, sector=5000 - 8 * i)
    builder.rows["block_stages"] = [{"ts_ns": 0, "c_ns": 1}] * n
    path = builder.write()
    found = study_disks(Trace.open(path)).findings
    words = "begin where the one before ended"
    assert any(words in finding for finding in found) is said
    row = run("info", path).stdout.partition("in order\n")[2].splitlines()[0]
    assert row.endswith("0 %" if said else "-")


def test_explain_and_info_say_what_is_told_and_what_is_not(disks):
    for verb in ("explain", "info"):
        result = run(verb, disks)
        assert result.return_value == 0, result.exception
        lines = [line for line in result.stdout.splitlines() if not line.startswith("Next: ")]
        assert max(map(len, lines)) <= 80
        for words in SAID:
            assert words in " ".join(result.stdout.split()), words
    told = json.loads(run("explain", disks, "--json").stdout)
    assert (told["kind"], told["requests"], told["calls"]) == ("disks", 12, 0)


def test_the_report_has_its_tables_and_no_tags_of_names(disks, tmp_path):
    output = tmp_path / "r.html"
    told = json.loads(run("report", disks, "-o", output, "-q", "--json").stdout)
    assert "10 writes of disk 0:1" in told["headline"]
    html = output.read_text()
    assert "&lt;b&gt;writer" in html
    assert "<b>writer" not in html
    assert "there are no calls" in html


def test_verbs_that_need_calls_say_so(disks, tmp_path):
    for words in (("compare", disks, disks, "-q"), ("plan", disks)):
        error = run(*words).exception
        assert isinstance(error, SpoolscopeError)
        assert "holds no call" in error.message
    assert not list(tmp_path.glob("*.html"))
