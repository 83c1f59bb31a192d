"""A part of the calls: shown calls add up, and their culprits may be outside the part."""

import pytest

from spoolscope.analysis.explain import explain
from spoolscope.analysis.selection import WHOLE, Selection
from spoolscope.traces.errors import SpoolscopeError
from spoolscope.traces.native import source_root
from spoolscope.traces.slices import parse_slice

pytestmark = pytest.mark.slow

S, MS = 1_000_000_000, 1_000_000
WAIT = "schedule < jbd2_log_wait_commit < ext4_sync_file"
LOCKED = "schedule < flock_lock_inode_wait < __do_sys_flock"
READ = "io_schedule < folio_wait_bit_common < filemap_get_pages < filemap_read"
LISTS = ("by_process", "by_program", "by_unit", "by_mailbox")


@pytest.fixture(scope="module")
def sample():
    root = source_root()
    assert root is not None
    return root / "traces" / "samples" / "postfix-dovecot"


def exact(found):
    """Check that every sum of an explanation equals that of its calls."""
    assert found.split.sum_error_ns == 0
    assert sum(found.causes.values()) == found.latency_ns
    for name in LISTS:
        rows = getattr(found.callers, name)
        assert sum(row.total_ns for row in rows) == found.latency_ns
        assert sum(row.n for row in rows) == found.n_calls
        for row in rows:
            assert sum(row.causes.values()) == row.total_ns
    return found.n_calls, found.latency_ns


def of_rows(trace, where):
    """Return the sums of a trace by the rows of its table."""
    from spoolscope.traces.trace import Trace

    query = f"SELECT count(*), CAST(sum(dur_ns) AS BIGINT) FROM syscalls WHERE {where}"
    return Trace.open(trace).connect().execute(query).fetchone()


def test_the_whole_and_its_parts_add_up_to_the_nanosecond(sample):
    whole = exact(explain(sample))
    assert exact(explain(sample, selection=WHOLE)) == whole
    for only, but in ((("imap",), ()), (("imap", "lmtp"), ())):
        some = exact(explain(sample, selection=Selection(only, but)))
        rest = exact(explain(sample, selection=Selection(but, only)))
        assert (some[0] + rest[0], some[1] + rest[1]) == whole
        assert some == of_rows(sample, f"comm IN {(*only, '')}")


def test_slices_that_follow_one_another_hold_every_call_once(sample):
    parts = [
        exact(explain(sample, selection=Selection(part=parse_slice(part))))
        for part in ("..1500ms", "1500ms..3s", "3..")
    ]
    assert tuple(map(sum, zip(*parts, strict=True))) == exact(explain(sample))


def test_what_a_slice_counts_is_what_overlaps_it(sample):
    from spoolscope.traces.trace import Trace

    found = explain(sample, selection=Selection(part=parse_slice("20s..21s")))
    con = Trace.open(sample).connect()
    from_ns = int(found.meta["start_ns"]) + 20 * S
    overlaps = f"WHERE ts_ns < {from_ns + S} AND ts_ns + dur_ns > {from_ns}"
    assert found.commits.n == con.execute(f"SELECT count(*) FROM commits {overlaps}").fetchone()[0]
    disks = {requests.disk for requests in found.evidence.requests}
    for disk in disks:
        of_disk = [r for r in found.evidence.requests if r.disk == disk]
        assert 0 < sum(r.total_ns for r in of_disk) <= S


@pytest.fixture
def locked(builder):
    """Return ten seconds: a commit and its flush in each tenth of a second, and one long flock."""
    builder.call("flock", 1500 * MS, 10, ((LOCKED, 7 * S),), tid=4, comm="waiter", path="lock")
    for n in range(100):
        at_ns = n * 100 * MS
        builder.call("fsync", at_ns, 10, ((WAIT, 80 * MS),), tid=3, comm="lmtp", path=f"box/{n}")
        asked = {"trigger_pid": 3, "trigger_tid": 3, "trigger_seq": n, "trigger_comm": "lmtp"}
        builder.commit(at_ns, 80 * MS, trigger="call", **asked)
        builder.block_io(at_ns, 0, 10 * MS, op="write")
        builder.block_io(at_ns + 10 * MS, 0, 60 * MS, op="flush")
    return builder


def test_a_long_wait_for_a_program_does_not_lengthen_a_slice(locked):
    # At 1,990 ms begins a call that waits for a commit beyond the slice.
    locked.call("fsync", 1990 * MS, 10, ((WAIT, 80 * MS),), tid=5, comm="imap", path="box/late")
    trace = locked.write(duration_ns=10 * S)
    found = explain(trace, selection=Selection(part=parse_slice("1s..2s")))
    commits = found.commits
    assert (commits.n, commits.kinds[0].n, commits.kinds[0].total_ns) == (10, 10, 800 * MS)
    assert sum(commits.kinds[0].parts.values()) == commits.kinds[0].total_ns
    assert (commits.charges.commit_ns, sum(b.n for b in commits.charges.by_call)) == (800 * MS, 10)
    assert found.askers.programs[0].n == found.askers.programs[0].n_commits == 10
    requests = {r.op: (r.n, r.total_ns) for r in found.evidence.requests}
    assert requests == {"write": (10, 100 * MS), "flush": (10, 600 * MS)}
    flushes = [i.evidence["n"] for i in found.insights if i.code == "J03"]
    assert flushes == [10]
    # The wait beyond the slice is charged, and its commit is among the longest.
    assert sum(b.others_ns for b in commits.blame) == 70 * MS
    assert [commit.at_ns for commit in commits.longest if commit.at_ns >= 2 * S] == [2 * S]


def test_commits_count_where_no_call_began(locked):
    trace = locked.write(duration_ns=10 * S)
    only = Selection(only=("waiter",), part=parse_slice("1s..2s"))
    assert explain(trace, selection=only).commits.n == 10


def test_a_request_at_the_edge_of_a_slice_counts_with_its_part(locked):
    locked.block_io(1950 * MS, 0, 6 * S, op="read", dev=2)
    trace = locked.write(duration_ns=10 * S)
    found = explain(trace, selection=Selection(part=parse_slice("1s..2s")))
    (read,) = [r for r in found.evidence.requests if r.op == "read"]
    assert (read.n, read.total_ns) == (1, 50 * MS)


def test_what_had_the_disk_is_looked_for_until_no_shown_call_waits(builder):
    builder.thread(9, "backup")
    for n in range(10):
        builder.block_io(n * S, 0, S, op="read", dev=2, pid=9, tid=9, comm="backup")
    builder.call("read", 1900 * MS, 10, ((READ, 500 * MS),), tid=4, comm="imap", path="box/1")
    builder.call("flock", 1500 * MS, 10, ((LOCKED, 7 * S),), tid=5, comm="waiter", path="lock")
    trace = builder.write(duration_ns=10 * S)
    found = explain(trace, selection=Selection(part=parse_slice("1s..2s")))
    (holder,) = found.evidence.disk_holders
    assert (holder.name, holder.n, holder.others_ns) == ("backup", 2, 500 * MS)
    assert [(r.n, r.total_ns) for r in found.evidence.requests] == [(1, S)]


def test_an_exported_slice_counts_what_overlaps_it(locked, tmp_path):
    from spoolscope.export.content import prepare
    from spoolscope.export.openmetrics import OpenMetrics
    from spoolscope.traces.trace import Trace

    with (trace := Trace.open(locked.write(duration_ns=10 * S))).connect() as con:
        content = prepare(con, trace, Selection(part=parse_slice("1s..2s")))
        OpenMetrics().write(content, tmp_path / "out")
    text = (tmp_path / "out").read_text()
    assert 'spoolscope_commit_duration_seconds_count{kind="jbd2_commit"} 10 ' in text
    assert 'spoolscope_block_request_duration_seconds_count{op="flush"} 10 ' in text


def test_a_mailbox_is_all_that_lies_in_it(sample):
    boxes = (row for row in explain(sample).callers.by_mailbox if not row.name.startswith("("))
    box = max(boxes, key=lambda row: row.n).name
    found = explain(sample, selection=Selection(only=(f"/{box}/",)))
    n, _ = exact(found)
    paths = f"SELECT path_id FROM paths WHERE path = '{box}' OR starts_with(path, '{box}/')"
    assert n == of_rows(sample, f"path_id IN ({paths}) OR path2_id IN ({paths})")[0]


def test_a_mailbox_with_its_mount_is_that_of_one_spool(builder):
    spools = [{"mount": mount, "fstype": "ext4", "options": "rw"} for mount in ("/a", "/a/b")]
    for number, ns in ((0, 300), (1, 700)):
        for n, path in enumerate(("in/1", "top")):
            at = 10 * number + n
            builder.add("paths", path_id=100 + at, path=path, kind="spool", spool=number)
            builder.call("read", at * 1000, ns, path_id=100 + at)
    trace = builder.write(spools=spools)
    for word, latency_ns in (("in", 1000), ("/a/in", 300), ("/a/b/in/", 700), ("/a/b", 1400)):
        assert explain(trace, selection=Selection(only=(word,))).latency_ns == latency_ns
    for word in ("/", "/a/none", "/b/in"):
        with pytest.raises(SpoolscopeError, match="no call is of a process or on a mailbox"):
            explain(trace, selection=Selection(only=(word,)))


def test_culprits_of_what_is_shown_may_be_left_out(sample):
    found = explain(sample, blame=True, selection=Selection(only=("imap",)))
    exact(found)
    assert {culprit.victim for culprit in found.culprits} == {"imap"}
    assert {culprit.culprit for culprit in found.culprits} - {"imap", "unknown"}


def test_both_at_once_and_by_process_id(sample):
    pid = explain(sample).callers.by_process[0].pid
    selection = Selection((str(pid),), (), parse_slice("1..4"))
    exact(found := explain(sample, selection=selection))
    assert {row.pid for row in found.callers.by_process} == {pid}
    assert found.selection.label == f"calls of {pid} begun from 1 s to 4 s"


@pytest.mark.parametrize(
    ("selection", "says"),
    [
        (Selection(only=("nobody",)), "no call is of a process or on a mailbox 'nobody'"),
        (Selection(but=("it's",)), "no call is of a process or on a mailbox 'it's'"),
        (Selection(only=("imap",), but=("imap",)), "the trace has no such calls"),
        (Selection(part=parse_slice("1h..")), "--slice begins at 3600 s"),
    ],
)
def test_what_means_no_call_is_refused(sample, selection, says):
    with pytest.raises(SpoolscopeError, match=says):
        explain(sample, selection=selection)


def test_a_process_is_meant_by_its_leader_s_name_whatever_its_threads_are_called(builder):
    builder.thread(50, "mysqld")
    builder.thread(60, "imap")
    builder.call("fsync", 0, 700, tid=51, pid=50, comm="ib_log_writer")
    builder.call("read", 0, 300, tid=60, pid=60, comm="imap")
    trace = builder.write()
    assert explain(trace, selection=Selection(only=("mysqld",))).latency_ns == 700
    assert explain(trace, selection=Selection(but=("mysqld",))).latency_ns == 300
    assert explain(trace, selection=Selection(only=("ib_log_writer",))).latency_ns == 700


def test_calls_without_a_length_are_explained(builder, capsys):
    """Check calls without a length, as from strace without -T."""
    from spoolscope.cli.main import main

    for tid, comm in ((50, "imap"), (60, "lmtp")):
        builder.call("read", 0, 0, tid=tid, comm=comm)
    with pytest.raises(SystemExit) as ended:
        main(["explain", str(builder.write())])
    assert ended.value.code == 0
    assert "2 calls, 0 in calls" in capsys.readouterr().out
