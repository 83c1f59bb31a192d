"""Evidence for rules of insights: each fact is found, and charged only where it belongs."""

from dataclasses import replace

import pytest

from spoolscope.analysis.askers import Asker
from spoolscope.analysis.evidence import Evidence, Requests
from spoolscope.analysis.explain import explain
from spoolscope.analysis.insights import apply, insight_rules
from spoolscope.analysis.lookups import LookupCost
from spoolscope.analysis.stages import begin
from spoolscope.traces.trace import Trace

S = 1_000_000_000
MS = 1_000_000
FORCED = Asker(
    "statsd (process 7)", "statsd", 300, 40, 500, 5 * S, 4 * S, 8 * S, "fsync", "statistics.db", 150
)
LINEAR = LookupCost("shared", 60_000, "none", S // 2, S, 2 * S, 3000, 0.35)
FULL = "schedule < __jbd2_log_wait_for_space < add_transaction_credits < start_this_handle"
SCANNED = "schedule < fanotify_get_response < fanotify_handle_event < fsnotify < path_openat"


def insights(kind, builder, **facts):
    """Return the insights of a rule from facts computed in Python."""
    [rule] = [rule for rule in insight_rules() if rule.kind == kind]
    builder.call("fsync", 0, S)
    with (trace := Trace.open(builder.write())).connect() as con:
        work = begin(con, trace.meta)
        work.facts |= {"lasted_ns": 10 * S} | facts
        return apply(work, rule)


def test_one_process_that_forces_the_commits_is_named(builder):
    [found] = insights("forced_commits", builder, evidence=Evidence(asker=FORCED))
    assert found.culprit == "statsd (process 7)"
    assert "300 of 500 commits, 30 a second" in found.mechanism
    assert "fsync on statistics.db: 300" in found.mechanism
    assert (found.share, found.severity) == (pytest.approx(4 / 8), "high")
    assert found.evidence["n"] == 300


@pytest.mark.parametrize(
    ("path_n", "said"),
    [(149, " (149 times) and on other files"), (1, " (1 time) and on other files")],
)
def test_a_path_of_less_than_half_the_commits_has_its_own_number(builder, path_n, said):
    few = Evidence(asker=replace(FORCED, path_n=path_n))
    [found] = insights("forced_commits", builder, evidence=few)
    assert f"fsync on statistics.db{said}: 300 of 500 commits" in found.mechanism


def test_forced_commits_without_a_recorded_call_have_no_path(builder):
    unsaid = Evidence(asker=replace(FORCED, syscall=None, path=None, path_n=0))
    [found] = insights("forced_commits", builder, evidence=unsaid)
    assert "with its calls on its files: 300 of 500 commits" in found.mechanism


def test_the_call_and_path_of_most_commits_are_counted(builder):
    wait = "schedule < jbd2_log_wait_commit < ext4_sync_file"
    for n in range(40):
        path, call = f"box/{0 if n < 10 else n}", "fsync" if n < 30 else "fdatasync"
        builder.call(call, n * MS, 10, ((wait, MS // 2),), tid=3, comm="spread", path=path)
        builder.call("fsync", n * MS, 10, ((wait, MS // 2),), tid=4, comm="lmtp", path="u/1")
        asked = {"trigger_pid": 3, "trigger_tid": 3, "trigger_seq": n, "trigger_comm": "spread"}
        builder.commit(n * MS, MS // 2, trigger="call", **asked)
    asker = explain(builder.write()).evidence.asker
    assert (asker.n, asker.syscall, asker.path, asker.path_n) == (40, "fsync", "box/0", 10)


def test_forced_commits_without_victims_are_no_insight(builder):
    few = Evidence(asker=replace(FORCED, others_ns=1))
    assert insights("forced_commits", builder, evidence=few) == []


def test_who_forces_commits_asks_far_more_often_than_any_other():
    assert FORCED.forces
    for change in ({"n": 90}, {"n": 15, "n_next": 0, "n_commits": 16}, {"n_next": 150}):
        assert not replace(FORCED, **change).forces


@pytest.mark.parametrize(
    ("spool", "remedy"),
    [
        ({"fstype": "ext4", "options": "rw,data=journal"}, "data=ordered"),
        ({"fstype": "ext4", "options": "rw"}, "tune2fs"),
        ({"fstype": "xfs", "options": "rw"}, "mkfs.xfs"),
    ],
)
def test_a_full_journal_is_named_with_its_remedy(builder, spool, remedy):
    builder.meta["spools"] = [{"mount": "/spool"} | spool]
    builder.call("rename", 0, 4 * MS, ((FULL, 6 * MS),))
    [found] = [i for i in explain(builder.write()).insights if i.kind == "full_journal"]
    assert found.share == 0.6
    assert remedy in found.remedy


def test_a_directory_searched_name_by_name_is_named(builder):
    [found] = insights("linear_directory", builder, lookups=[LINEAR])
    assert found.culprit == "The directory shared"
    assert "60,000 names and no index" in found.mechanism
    assert found.share == pytest.approx(0.35)


@pytest.mark.parametrize(
    "change", [{"index": "hash"}, {"index": "unknown"}, {"entries": 200}, {"entries": None}]
)
def test_a_directory_with_an_index_or_few_names_is_not(builder, change):
    assert insights("linear_directory", builder, lookups=[replace(LINEAR, **change)]) == []


@pytest.mark.parametrize(("ended", "culprit"), [(6, "scand (process 9)"), (2, "A program")])
def test_the_program_that_ended_most_of_it_is_named(builder, ended, culprit):
    for k in range(10):
        builder.call("openat", k * 20 * MS, MS, ((SCANNED, 10 * MS),))
        waker = {"waker": "task", "waker_pid": 9, "waker_tid": 9, "waker_comm": "scand"}
        builder.rows["segments"][-1].update(waker if k < ended else {})
    [found] = [i for i in explain(builder.write()).insights if i.kind == "scanner"]
    assert found.culprit.startswith(culprit)


def test_waiting_behind_others_in_the_device_is_not_slowness(builder):
    """Check ten writes issued at once and served in sequence in 2 ms each: each takes 2 ms."""
    builder.call("read", 0)
    for n in range(10):
        builder.block_io(100, device_ns=(n + 1) * 2_000_000)
    assert explain(builder.write()).evidence.requests == (
        Requests("write", 10, 2_000_000, 20_000_000, disk=1),
    )


def test_the_worst_holder_is_the_one_of_the_most_time(builder):
    for pid, runq in ((9, 500), (8, 300), (8, 300)):
        builder.call("fsync", 0, 10, ((None, 1),), tid=pid)
        builder.call("write", 0, 10, tid=2, comm="imap", runq_ns=runq)
        builder.held(pid, 0, runq, comm="cc1" if pid == 8 else "ld")
    builder.call("write", 0, 10, tid=3, comm="imap", runq_ns=3000)
    builder.held(2, 0, 3000, comm="imap")  # a process of its own name
    builder.sleep(0, 5000, None, state="runq")  # the wait of a kernel thread is not one of a call
    builder.held(9, 0, 5000, comm="ld")
    for _ in range(2):  # the recording's own turns are measurement
        builder.call("write", 0, 10, tid=4, comm="imap", runq_ns=4000)
        builder.held(70, 0, 4000, comm="spoolscope-reco")
    found = explain(builder.write())
    held = found.evidence.cpu_holder
    assert (held.who, held.ns, held.syscall, held.syscall_ns) == (
        "cc1 (process 8)", 600, "write", 600,
    )  # fmt: skip
    assert found.evidence.measurement_ns == 8000
    assert "spoolscope" not in " ".join(insight.text for insight in found.insights)
