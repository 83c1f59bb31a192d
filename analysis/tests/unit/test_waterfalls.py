"""Slow calls taken apart: the call without gaps, its culprits, commit, requests."""

import itertools

import pytest

from spoolscope.analysis.explain import explain_with
from spoolscope.analysis.spans import Span, fewer
from spoolscope.analysis.waterfalls import waterfalls
from spoolscope.report.falls import falls_of
from spoolscope.traces.trace import Trace

pytestmark = pytest.mark.slow

MS = 1_000_000
COMMIT = "schedule < jbd2_log_wait_commit < ext4_sync_file"
FLUSH = "schedule < blkdev_issue_flush < ext4_sync_file"
FLUSHING = "schedule < submit_bio_wait < blkdev_issue_flush < jbd2_journal_commit_transaction"


def taken_apart(path, blame=True):
    trace = Trace.open(path)
    with trace.connect() as con:
        explain_with(con, trace, blame=blame)
        return waterfalls(con, trace.meta)


def lanes_of(call, kind):
    return [lane for lane in call.lanes if lane.kind == kind]


@pytest.fixture
def slow(builder):
    """Return an fsync of 21 ms that waited for a commit triggered by another process."""
    builder.thread(100, "lmtp")
    builder.thread(200, "backup")
    builder.call("fsync", 0, 1 * MS, ((COMMIT, 16 * MS), (FLUSH, 3 * MS)), path="u/tmp/1",
                 runq_ns=1 * MS)  # fmt: skip
    other = builder.call("fsync", -1 * MS, 100, ((COMMIT, 12 * MS),), tid=200, comm="backup")
    builder.commit(1 * MS, 15 * MS, trigger="call", trigger_pid=200, trigger_tid=200,
                   trigger_seq=other["seq"], trigger_comm="backup")  # fmt: skip
    builder.sleep(2 * MS, 14 * MS, FLUSHING)
    builder.block_io(2 * MS, 1 * MS, 12 * MS, sector=8, meta=True)
    return taken_apart(builder.write())[0]


def test_the_call_is_covered_without_a_gap(slow):
    (own,) = lanes_of(slow, "own")
    assert (slow.syscall, slow.comm, slow.pid) == ("fsync", "lmtp", 100)
    assert [(s.from_ns, s.to_ns, *s.causes) for s in own.spans] == [
        (0, 16 * MS, "journal_commit"), (16 * MS, 19 * MS, "flush"),
        (19 * MS, 20 * MS, "runq"), (20 * MS, 21 * MS, "cpu"),
    ]  # fmt: skip
    assert slow.causes == {
        "journal_commit": 16 * MS, "flush": 3 * MS, "runq": MS, "cpu": MS}  # fmt: skip
    assert sum(slow.causes.values()) == slow.dur_ns == 21 * MS


def test_what_kept_it_waiting_is_followed_to_the_end_of_the_chain(slow):
    (holder,) = lanes_of(slow, "holder")
    asked = [span for span in holder.spans if span.words == "asked for by backup 200 (fsync)"]
    assert asked
    assert asked[0].causes == {"journal_commit": asked[0].ns}
    further = [span.words for lane in lanes_of(slow, "meanwhile") for span in lane.spans]
    assert any("waited for" in words for words in further)


def test_the_commit_and_its_requests_are_beside_it(slow):
    (commit,) = lanes_of(slow, "commit")
    assert sum(span.ns for span in commit.spans) == 15 * MS
    doing = {span.words.split(":")[0] for span in commit.spans}
    assert "cache flush" in doing or "log write" in doing
    assert all(span.words.endswith("jbd2_commit for backup 200 (fsync)") for span in commit.spans)
    (request,) = lanes_of(slow, "request")
    assert [(s.from_ns, s.to_ns, s.causes, s.words) for s in request.spans] == [
        (2 * MS, 15 * MS, {"block_queue": MS, "block_device": 12 * MS},
         "write of 4 KiB, metadata, by jbd2/loop0-8"),
    ]  # fmt: skip


def test_blocked_time_without_a_place_is_not_called_running(builder):
    builder.call("fsync", 0, 1 * MS, ((None, 5 * MS),))
    (call,) = taken_apart(builder.write())
    (span,) = lanes_of(call, "own")[0].spans
    assert (span.ns, list(span.causes)) == (6 * MS, ["unexplained"])
    assert span.words == "on the CPU, or blocked for a reason not recorded"


def test_without_blame_the_other_tracks_stay(builder):
    builder.call("fsync", 0, 1 * MS, ((COMMIT, 5 * MS),))
    builder.commit(0, 5 * MS)
    (call,) = taken_apart(builder.write(), blame=False)
    assert [lane.kind for lane in call.lanes] == ["own", "commit"]


def test_many_spans_become_few_and_lose_no_time():
    spans = [Span(10 * n, 10 * n + 10, {"cpu" if n % 2 else "runq": 10}, "x") for n in range(999)]
    spans[500] = Span(5000, 5010, {"flush": 10}, "kept")
    found = fewer(spans, 81)
    assert len(found) <= 81
    assert sum(span.n for span in found) == 999
    assert sum(ns for span in found for ns in span.causes.values()) == 9990
    assert all(a.to_ns <= b.from_ns for a, b in itertools.pairwise(found))


def test_bars_fill_their_track(slow):
    (fall,) = falls_of([slow])
    own = fall.tracks[0].bars
    assert sum(bar.width for bar in own) == pytest.approx(100)
    assert all(0 <= bar.left <= 100 and bar.left + bar.width <= 100.001
               for track in fall.tracks for bar in track.bars)  # fmt: skip
    queued, served = fall.tracks[-1].bars
    assert (queued.ink, served.ink) == ("block_queue", "block_device")
    assert served.left == pytest.approx(queued.left + queued.width)
