"""Stages of the analysis: each makes its declared tables from its declared needs only."""

import pytest

from spoolscope.analysis.stage import Stage, Work, in_order
from spoolscope.analysis.stages import STAGES, begin
from spoolscope.traces.schema import TABLES
from spoolscope.traces.trace import Trace

MADE = [made for stage in STAGES for made in stage.makes]
SECOND = 1_000_000_000


@pytest.fixture
def whole(builder):
    """Return a connection with all stages run, for a trace with all kinds of rows."""
    builder.meta["sample_hz"] = 100
    commit = "schedule < jbd2_log_wait_commit < ext4_sync_file"
    builder.call("fsync", 0, 1000, ((commit, 9000),), path="a/new/1", runq_ns=50)
    builder.held(9, 0, 50)
    builder.call("openat", SECOND, 1000, (("schedule < do_get_write_access < ext4_create", 700),))
    builder.commit(0, 9000, trigger="call", trigger_pid=100, trigger_tid=100, trigger_seq=0)
    builder.sleep(100, 5000, "schedule < submit_bio_wait < jbd2_journal_commit_transaction")
    builder.block_io(100, 10, 5000)
    builder.lock_wait(100, 0, 500, "mutex", owner_pid=9, owner_tid=9)
    with Trace.open(builder.write()).connect() as con:
        begin(con).make(*(made.name for made in MADE))
        yield con


def test_a_table_brings_what_it_is_made_of():
    names = [stage.name for stage in in_order(STAGES, ["wait_parts"])]
    assert set(names) == {
        "stack_causes", "waited", "named_waits", "services", "commit_spans", "commit_parts",
        "wait_parts",
    }  # fmt: skip
    assert names[-1] == "wait_parts"
    assert in_order(STAGES, ["syscalls"]) == []
    with pytest.raises(KeyError):
        in_order(STAGES, ["nothing"])


def test_nothing_is_made_twice():
    runs = []
    first = Stage("a", (), (), lambda _: runs.append("a"), inner=("a",))
    second = Stage("b", ("a",), (), lambda _: runs.append("b"), inner=("b",))
    work = Work(None, (second, first))
    work.make("b")
    work.make("a", "b")
    assert runs == ["a", "b"]


def test_no_two_stages_make_the_same_and_no_name_is_a_recorded_tables():
    tables = [table for stage in STAGES for table in stage.tables]
    assert len(set(tables)) == len(tables)
    assert not set(tables) & set(TABLES)


def test_every_column_has_its_unit(whole):
    for made in MADE:
        described = [row[0] for row in whole.execute(f"DESCRIBE {made.name}").fetchall()]
        assert [column.name for column in made.columns] == described
        for column in made.columns:
            assert column.meaning.endswith("."), (made.name, column)
            is_time = column.name == "ns" or column.name.endswith("_ns")
            assert (column.unit == "ns") == is_time, (made.name, column)


@pytest.mark.slow
@pytest.mark.parametrize("stage", STAGES, ids=[stage.name for stage in STAGES])
def test_a_stage_needs_what_it_says_and_no_more(whole, stage, builder):
    with Trace(builder.path, {}).connect() as con:
        for table in TABLES:
            if table not in stage.needs:
                con.execute(f"DROP VIEW IF EXISTS {table}")
                con.execute(f"DROP TABLE IF EXISTS {table}")
        for table in set(stage.needs) - set(TABLES):
            con.register("copy", whole.sql(f"SELECT * FROM {table}").to_arrow_table())
            con.execute(f"CREATE TEMP TABLE {table} AS SELECT * FROM copy")
        work = begin(con, {"sample_hz": 100})
        work.made |= {s.name for s in STAGES}
        stage.make(work)
        for table in stage.tables:
            con.execute(f"SELECT * FROM {table} LIMIT 1")
