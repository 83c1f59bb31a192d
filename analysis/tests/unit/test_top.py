"""spoolscope top: one interval by process, and its output."""

import csv
import itertools
import json

import pytest
from click.testing import CliRunner

from spoolscope.analysis.top import study_interval
from spoolscope.cli import top
from spoolscope.cli.main import group
from spoolscope.cli.top_forms import FormPrinter
from spoolscope.traces.recording import Recording, write_control

COMMIT = "schedule < jbd2_log_wait_commit < ext4_sync_file < do_fsync"
FLUSH = "schedule < submit_bio_wait < blkdev_issue_flush < ext4_sync_file"


@pytest.fixture
def busy(builder):
    for i in range(7):
        builder.call("fsync", i * 10**6, 10, ((COMMIT, 500), (FLUSH, 300)), tid=1, runq_ns=5)
    for i in range(5):
        builder.call("newfstatat", i * 10**6, 20, tid=2, comm="imap", preempted_ns=3)
    builder.call("write", 10**7, 10, ((None, 40),), tid=2, comm="imap-late")
    builder.call("exit_group", 10**8, 10**6, tid=3, comm="python")
    builder.commit(0, 400, trigger="call", trigger_pid=1, trigger_tid=1, trigger_comm="lmtp")
    builder.commit(500, 400, trigger="call", trigger_pid=4, trigger_tid=4, trigger_comm="sync")
    builder.commit(900, 400, trigger="timer")
    return builder


def test_time_by_process_sums_to_its_causes(busy):
    found = study_interval(busy.write())
    assert [(p.pid, p.comm, p.calls, p.commits) for p in found.processes] == [
        (1, "lmtp", 7, 1),
        (2, "imap-late", 6, 0),
        (4, "sync", 0, 1),
    ]
    lmtp, imap, _ = found.processes
    assert (lmtp.time_ns, lmtp.max_ns, lmtp.blocked_ns) == (7 * 815, 815, 7 * 800)
    assert list(lmtp.causes.items()) == [
        ("journal_commit", 3500),
        ("flush", 2100),
        ("cpu", 70),
        ("runq", 35),
    ]
    assert imap.causes == {"cpu": 110, "unexplained": 40, "preempt": 15}
    for process in found.processes:
        assert sum(process.causes.values()) == process.time_ns
    assert found.commits == 3


def test_a_screen_shows_each_trace_once_and_counts_those_skipped(busy, tmp_path, capsys):
    place = tmp_path / "top"
    place.mkdir()
    control = {"kind": "trace", "recorder_pid": 1, "recorder_started": None, "skipped": 0}
    write_control(place, control)
    busy.path = place / "trace-000001"
    busy.write(segment=1)
    screen = top.Screen(place, 2, clear=True)
    screen.look()
    screen.look()
    heading, columns, *rows = capsys.readouterr().out.splitlines()
    assert heading.endswith("13 calls, 3 commits")
    assert columns.split() == ["PID", "COMM", "CALLS", "TIME", "BLOCKED", "COMMITS", "MOSTLY"]
    assert [row.split()[:3] for row in rows if row] == [["1", "lmtp", "7"], ["2", "imap-late", "6"]]
    assert max(map(len, (heading, columns, *rows))) < 80
    busy.path = place / "trace-000002"
    busy.write(segment=4, lost=3)
    screen.printer = FormPrinter("json", names=False)
    screen.look()
    [line] = capsys.readouterr().out.splitlines()
    assert [p["calls"] for p in json.loads(line)["processes"]] == [7, 6, 0]
    assert (screen.skipped, screen.lost) == (2, 3)


def test_no_more_intervals_are_shown_than_were_asked_for(busy, tmp_path, capsys):
    place = tmp_path / "top"
    place.mkdir()
    control = {"kind": "trace", "recorder_pid": 1, "recorder_started": None, "skipped": 0}
    write_control(place, control)
    printer = FormPrinter("json", names=False)
    screen = top.Screen(place, 20, clear=False, printer=printer, count=2)
    # The recording ends a moment after the second interval, in a third one.
    for segment in (1, 2, 3):
        busy.path = place / f"trace-{segment:06}"
        busy.write(segment=segment)
        screen.look()
    assert len(capsys.readouterr().out.splitlines()) == 2
    assert screen.skipped == 0


def test_traces_come_and_go_while_it_looks(busy, tmp_path, capsys, monkeypatch):
    place = tmp_path / "top"
    place.mkdir()
    control = {"kind": "trace", "recorder_pid": 1, "recorder_started": None, "skipped": 0}
    write_control(place, control)
    busy.path = place / "trace-000002"
    busy.write(segment=1)
    there = Recording.traces
    # One was removed after it was found, and each look finds a new one.
    looks = itertools.count(3)

    def traces(recording):
        found = [place / "trace-000001", *there(recording)]
        busy.path = place / f"trace-{next(looks):06}"
        busy.write(segment=2)
        return found

    monkeypatch.setattr(Recording, "traces", traces)
    top.Screen(place, 2, clear=False, printer=FormPrinter("json", names=False)).look()
    assert len(capsys.readouterr().out.splitlines()) == 1


def test_intervals_as_one_csv_table_and_as_markdown(capsys):
    user = {"comm": "lm,tp\x1b", "calls": 2, "causes": {"cpu": 5, "journal_commit": 7}}
    idle = {"comm": "imap", "calls": 0, "causes": {}}
    intervals = [{"start_ns": n, "duration_ns": 9, "programs": [user, idle]} for n in (1, 10)]
    printer = FormPrinter("csv", names=False)
    for interval in (intervals[0], {**intervals[0], "programs": []}, intervals[1]):
        printer.show(interval, "programs")
    rows = list(csv.reader(capsys.readouterr().out.splitlines(), strict=True))
    first = ["start_ns", "duration_ns", "comm", "calls", "largest_cause", "largest_cause_ns"]
    assert rows[0] == first
    assert [row[0] for row in rows[1:]] == ["1", "1", "10", "10"]
    assert rows[1][3:] == ["2", "journal_commit", "7"]
    assert rows[2][3:] == ["0", "", ""]
    assert "\x1b" not in rows[1][2]
    assert rows[1][2].startswith("lm,tp")
    FormPrinter("markdown", names=True).show(intervals[0], "programs")
    mark, _, heads, *lines = capsys.readouterr().out.splitlines()
    assert mark == "Real names: do not give away."
    assert heads.count("|") == lines[0].count("|") == lines[1].count("|") == 7


def test_a_spool_has_to_be_named():
    result = CliRunner().invoke(group, ["top"])
    assert result.exit_code != 0
    assert "no spool named" in str(result.exception)
