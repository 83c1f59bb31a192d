"""The part of a slow disk's log that culprits caused; what is left out; the slow server."""

import errno
from contextlib import nullcontext

import pytest

from spoolscope.analysis.causes import CAUSES
from spoolscope.analysis.explain import explain
from spoolscope.lab import slow_server, trouble_runs
from spoolscope.lab.accuracy import Score
from spoolscope.lab.faults import FAULTS
from spoolscope.lab.slowdisk import Delayed
from spoolscope.lab.suite import Deed, Outcome, _asked_by, _until_asked
from spoolscope.lab.table import markdown, text
from spoolscope.traces.errors import SpoolscopeError
from spoolscope.traces.trace import Trace

MS = 1_000_000
CULPRIT, VICTIM = 7, 8


def test_a_delay_is_the_culprits_only_if_it_asked_for_those_bytes_at_that_time(builder):
    builder.call("unlink", 0, 10)
    for pid, at, sector in ((CULPRIT, 0, 8), (VICTIM, 50, 80), (CULPRIT, 100, 80)):
        builder.block_io(
            at * MS, 0, 40 * MS, pid=pid, tid=pid, sector=sector, bytes=4096, op="read"
        )
    began = min(row["ts_ns"] for row in builder.rows["block_ios"])

    def delayed(kind, offset, begin_ms):
        begin = began + begin_ms * MS
        return Delayed(kind, offset, 4096, begin, begin + 40 * MS)

    theirs = [delayed("read", 4096, 0), delayed("read", 80 * 512, 101)]
    others = [
        delayed("read", 80 * 512, 50),  # the victim's
        delayed("read", 4096, 100),  # at that time the culprit requested other bytes
        delayed("write", 4096, 0),
        delayed("read", 4096, 30),  # long after its request
    ]
    with Trace.open(builder.write()).connect() as con:
        assert _asked_by(con, [*theirs, *others], {CULPRIT}) == theirs


def test_a_limit_is_at_work_until_the_disk_was_asked_for_the_last_write():
    deeds = [Deed("deliver", 7, 100, 200), Deed("deliver", 7, 300, 400), Deed("deliver", 7, 500, 9)]
    asked = [(90, 95), (310, 320), (120, 130), (190, 210), (395, 410), (450, 460)]
    log = [Delayed("write", 0, 4096, begin, end) for begin, end in asked]
    assert _until_asked(deeds, log) == [(100, 120), (130, 190), (300, 310), (320, 395)]


def score(**values) -> Score:
    whole = {"n_calls": 100, "n_judged": 1, "n_robbed": 0, "n_right": 1, "wrong": {}, "n_direct": 1,
             "n_named": 1, "injected_ns": 10, "found_ns": 10, "direct_ns": 10, "typical": 1.0,
             "beyond_ns": 0}  # fmt: skip
    return Score(**whole | values)


def test_the_page_ends_with_what_is_known_of_rows_that_fail_only_if_there_are_any(builder):
    builder.call("fsync", 0)
    found = explain(builder.write())
    good = Outcome("cpu-hog", "ext4", score(), found)
    assert "do not reach the goals:" not in markdown([good], 1.0)
    bad = Outcome("cpu-hog", "ext4", score(n_right=0), found)
    _, _, known = markdown([good, bad], 1.0).partition("do not reach the goals:\n\n")
    assert known.startswith("* **cpu-hog** on ext4: ")
    assert known.count("* **") == 1


def test_the_page_says_by_which_command_it_was_made(builder):
    builder.call("fsync", 0)
    outcomes = [Outcome("cpu-hog", "ext4", score(), explain(builder.write()))]
    words = ["cpu-hog", "--on", "ext4", "-o", "my page.md"]
    assert "\n    sudo spoolscope lab faults cpu-hog --on ext4 -o 'my page.md'\n" in markdown(
        outcomes, 1.0, words
    )


def test_the_table_fits_a_terminal(builder):
    builder.call("fsync", 0)
    found = explain(builder.write())
    mistakes = dict.fromkeys(CAUSES, 1000)
    rows = [
        Outcome(name, "btrfs", score(n_right=0, n_judged=99_999, wrong=mistakes), found)
        for name in FAULTS
    ]
    lines = list(text(rows))
    assert max(map(len, lines)) <= 80
    assert sum(line.startswith(tuple(FAULTS)) for line in lines) == len(FAULTS)
    assert lines[-1] == "Not shown here: robbed, directly, beyond; --csv has all."


def test_a_trouble_that_cannot_be_made_is_named_with_the_remedy(monkeypatch, tmp_path):
    def fails(*_):
        raise SpoolscopeError("mkfs.ext4 is missing", remedy="apt-get install e2fsprogs")

    monkeypatch.setattr(trouble_runs, "recorded", fails)
    monkeypatch.setattr(trouble_runs, "memory_directory", lambda: nullcontext(tmp_path))
    found, left_out = trouble_runs.run_all(["dotlock"], lambda *_: None)
    assert (found, len(left_out)) == ([], 2)
    assert left_out[0].endswith(": mkfs.ext4 is missing; apt-get install e2fsprogs")


@pytest.mark.parametrize("name", [b"autorun.inf\0", b"-1\0", b"\0"])
def test_the_slow_server_goes_on_after_a_name_that_it_does_not_have(name):
    assert slow_server.answer(slow_server.LOOKUP, 1, name) == errno.ENOENT
    assert isinstance(slow_server.answer(slow_server.LOOKUP, 1, b"7\0"), bytes)
