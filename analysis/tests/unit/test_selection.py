"""A part of the calls: shown calls add up, and their culprits may be outside the part."""

import pytest

from spoolscope.analysis.explain import explain
from spoolscope.analysis.selection import WHOLE, Selection
from spoolscope.traces.errors import SpoolscopeError
from spoolscope.traces.native import source_root
from spoolscope.traces.slices import parse_slice

pytestmark = pytest.mark.slow

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


def test_a_mailbox_is_all_that_lies_in_it(sample):
    boxes = (row for row in explain(sample).callers.by_mailbox if not row.name.startswith("("))
    box = max(boxes, key=lambda row: row.n).name
    found = explain(sample, selection=Selection(only=(f"/{box}/",)))
    n, _ = exact(found)
    paths = f"SELECT path_id FROM paths WHERE path = '{box}' OR starts_with(path, '{box}/')"
    assert n == of_rows(sample, f"path_id IN ({paths}) OR path2_id IN ({paths})")[0]


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
