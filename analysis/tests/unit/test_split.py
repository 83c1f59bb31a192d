"""The parts of a call's time add up with any data missing."""

import random
import time

import duckdb
import pytest

from spoolscope.analysis.explain import explain
from spoolscope.analysis.split import check_split, find_waited
from spoolscope.analysis.stages import begin
from spoolscope.traces.trace import Trace

pytestmark = pytest.mark.slow

COMMIT = "schedule < jbd2_log_wait_commit < ext4_sync_file < do_fsync"
FLUSH = "schedule < submit_bio_wait < blkdev_issue_flush < ext4_sync_file"
UNKNOWN = "schedule < do_nanosleep < hrtimer_nanosleep"


def test_causes_of_calls_sum_to_the_whole(builder):
    rng = random.Random(7)
    for n in range(500):
        waits = [
            (rng.choice([COMMIT, FLUSH, UNKNOWN, None]), rng.randrange(1, 10**7))
            for _ in range(rng.randrange(4))
        ]
        on_cpu = rng.randrange(10**6)
        builder.call(
            "fsync",
            n * 10**8,
            on_cpu,
            tuple(waits),
            tid=n % 5,
            runq_ns=rng.randrange(10**4),
            preempted_ns=rng.randrange(10**4),
            stolen_ns=rng.choice([None, 0, rng.randrange(on_cpu + 1)]),
        )
    found = explain(builder.write())
    stolen = sum(row["stolen_ns"] or 0 for row in builder.rows["syscalls"])
    assert found.causes["steal"] == stolen
    assert found.causes["cpu"] + stolen == sum(r["oncpu_ns"] for r in builder.rows["syscalls"])
    assert found.split.sum_error_ns == 0
    assert sum(found.causes.values()) == found.latency_ns
    assert found.latency_ns == sum(row["dur_ns"] for row in builder.rows["syscalls"])
    assert found.split.blocked_ns == sum(row["blocked_ns"] for row in builder.rows["syscalls"])
    assert found.blocked_named_ns == found.causes["journal_commit"] + found.causes["flush"]


def test_a_lost_segment_is_unexplained(builder):
    builder.call("fsync", 0, 10, ((COMMIT, 500), (None, 300)))
    found = explain(builder.write())
    assert found.split.sum_error_ns == 0
    assert found.causes == {"journal_commit": 500, "cpu": 10, "unexplained": 300}
    assert found.split.without_segment_ns == 300
    assert found.split.segment_error_ns == 300
    assert any("no segment" in remark for remark in found.remarks)


def test_a_segment_that_does_not_fit_is_an_error(builder):
    builder.call("fsync", 0, 10, ((COMMIT, 500),))
    builder.rows["segments"][0]["dur_ns"] = 507
    with (trace := Trace.open(builder.write())).connect() as con:
        begin(con).make("named_waits")
        assert check_split(con).sum_error_ns == 7
    assert trace.meta["complete"]


@pytest.mark.parametrize(
    ("wrong", "error_ns"),
    [
        ({"dur_ns": 12}, 2),
        ({"oncpu_ns": 13, "runq_ns": -3}, 3),
        ({"oncpu_ns": -4, "dur_ns": -4}, 4),
        ({"stolen_ns": 12}, 2),
        ({"stolen_ns": -2}, 2),
    ],
)
def test_a_recorder_that_does_not_add_up_is_an_error(builder, wrong, error_ns):
    builder.call("read", 0, 10).update(wrong)
    assert explain(builder.write()).split.sum_error_ns == error_ns


def test_calls_that_waited_and_calls_that_did_not_are_summed(builder):
    builder.call("read", 0, 10)
    builder.call("read", 1000, 20, ((COMMIT, 500),), runq_ns=5, preempted_ns=7)
    builder.call("close", 2000, 3)
    calls = explain(builder.write()).by_syscall
    assert calls["read"].causes == {"journal_commit": 500, "runq": 5, "preempt": 7, "cpu": 30}
    assert (calls["read"].latency.n, calls["read"].latency.total_ns) == (2, 542)
    assert calls["close"].causes == {"cpu": 3}


def test_equal_sequence_numbers_of_a_reused_thread_id_are_told_apart(builder):
    builder.call("fsync", 0, 10, ((COMMIT, 500),))
    builder._seq.clear()
    builder.call("fsync", 10**6, 10, ((FLUSH, 900),))
    found = explain(builder.write())
    assert found.split.sum_error_ns == 0
    assert found.causes == {"journal_commit": 500, "flush": 900, "cpu": 20}


def test_segments_outside_calls_do_not_count(builder):
    builder.call("fsync", 0, 10, ((COMMIT, 500),))
    builder.wait(7, None, builder.rows["syscalls"][0]["ts_ns"], 400, "blocked", 1)
    assert explain(builder.write()).split.blocked_ns == 500


def test_unknown_stacks_are_clustered_with_their_share(builder):
    builder.call("read", 0, 10, ((UNKNOWN, 300),))
    builder.call("read", 1000, 10, (("bpf_x < " + UNKNOWN + ".isra.0", 100),))
    builder.call("fsync", 2000, 10, ((COMMIT, 600),))
    (cluster,) = explain(builder.write()).unknown
    assert cluster.frames == ("do_nanosleep", "hrtimer_nanosleep")
    assert (cluster.ns, cluster.n, cluster.syscalls) == (400, 2, ("read",))
    assert cluster.share == 0.4
    assert cluster.rule == '{ cause = "CAUSE", stack = "do_nanosleep < hrtimer_nanosleep" },'


def test_an_empty_trace_is_explained(builder):
    found = explain(builder.write(complete=False, lost=3))
    assert (found.n_calls, found.latency_ns, found.causes, found.named_share) == (0, 0, {}, 1.0)
    assert len(found.remarks) == 2


def test_commits_that_nobody_triggered_take_no_time():
    """Check the speed: DuckDB compared all pairs; 2 M calls and 20,000 commits took 20 s."""
    spent = []
    for n in (0, 20_000):
        con = duckdb.connect()
        con.execute(
            "CREATE TABLE syscalls AS SELECT i AS ts_ns, 1 AS dur_ns, 1 AS oncpu_ns,"
            " 0 AS blocked_ns, 0 AS runq_ns, 0 AS preempted_ns, 0 AS stolen_ns, 1 AS pid, 1 AS tid,"
            " i AS seq, 'x' AS comm, 'read' AS syscall, 1 AS dev, 1 AS path_id, 0 AS errno,"
            " 0 AS flags FROM range(200000) t(i);"
            "CREATE TABLE samples AS SELECT 1 AS tid, 7 AS seq;"
            "CREATE TABLE commits AS SELECT CAST(NULL AS INTEGER) AS trigger_tid,"
            f" CAST(NULL AS BIGINT) AS trigger_seq FROM range({n})"
        )
        began = time.process_time()
        find_waited(con, "true")
        spent.append(time.process_time() - began)
        assert con.execute("SELECT seq FROM waited").fetchall() == [(7,)]
    assert spent[1] < 10 * spent[0]
