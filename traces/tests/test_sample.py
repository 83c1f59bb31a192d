"""The shipped sample is, as its README states, a complete, private trace of a busy mail server."""

import re
from pathlib import Path

import pytest

from spoolscope.traces.schema import TABLES
from spoolscope.traces.trace import Trace

SAMPLE = Path(__file__).resolve().parents[1] / "samples" / "postfix-dovecot"
MAX_BYTES = 5_000_000


@pytest.fixture(scope="module")
def sample() -> Trace:
    return Trace.open(SAMPLE)


def one(sample: Trace, query: str):
    return sample.connect().execute(query).fetchone()[0]


def test_it_is_complete_and_small(sample: Trace) -> None:
    assert (sample.meta["complete"], sample.meta["lost"]) == (True, 0)
    assert sample.meta["paths_unresolved"] == 0
    assert sample.meta["duration_ns"] >= 30e9
    assert sum(f.stat().st_size for f in SAMPLE.iterdir()) <= MAX_BYTES


def test_a_trace_that_0_1_recorded_is_read_with_the_columns_of_today(sample: Trace) -> None:
    assert sample.meta["version"] == "0.1.0"
    for name, table in TABLES.items():
        assert set(sample.table(name).column_names) == {column.name for column in table.columns}
    newer = sample.table("syscalls", ["given_id"])["given_id"]
    assert newer.null_count == len(newer) > 100_000


def test_deliveries_imap_and_pop3_ran_with_twenty_processes_at_once(sample: Trace) -> None:
    comms = {row["comm"] for row in sample.table("threads", ["comm"]).to_pylist()}
    assert {"smtpd", "cleanup", "qmgr", "lmtp", "imap", "pop3"} <= comms
    alive_at_once = """
        WITH life AS (SELECT coalesce(start_ns, 0) AS b, coalesce(end_ns, 9e18) AS e
                      FROM threads WHERE kind = 'task')
        SELECT max(n) FROM (SELECT count(*) AS n FROM life a JOIN life o
                            ON o.b <= a.b AND a.b < o.e GROUP BY a.b, a.e)"""
    assert one(sample, alive_at_once) >= 20


def test_every_thread_is_without_holes(sample: Trace) -> None:
    holes = """SELECT count(*) FROM (
                   SELECT count(*) AS n, min(seq) AS first, max(seq) AS last
                   FROM syscalls GROUP BY tid)
               WHERE first <> 0 OR n <> last + 1"""
    assert one(sample, holes) == 0


def test_the_parts_of_every_call_add_up(sample: Trace) -> None:
    worst = "SELECT max(abs(dur_ns - oncpu_ns - blocked_ns - runq_ns - preempted_ns)) FROM syscalls"
    assert one(sample, worst) == 0


def test_names_are_pseudonyms(sample: Trace) -> None:
    assert sample.meta["pseudonymised"] is True
    paths = sample.table("paths", ["path"]).column(0).to_pylist()
    # Parts of names that prefill.py and the servers wrote: users, hosts, process ids and times.
    told = re.compile(r"user\d\d\d|example|\d{9,}\.M\d+P\d+")
    assert [p for p in paths if told.search(p)] == []
    assert sum("/cur/" in p for p in paths) > 1000
