"""Callers: the order of those with the same time."""

import pytest

from spoolscope.analysis.callers import study_callers
from spoolscope.analysis.families import Families
from spoolscope.traces.trace import Trace


@pytest.mark.parametrize("pids", [(7, 3, 5), (5, 7, 3)])
def test_processes_with_the_same_name_and_time_are_listed_by_number(builder, pids):
    builder.call("read", 0)
    with Trace.open(builder.write()).connect() as con:
        con.execute("CREATE TEMP TABLE path_causes (path_id BIGINT, cause TEXT, n INT, ns BIGINT)")
        rows = ", ".join(f"({pid}, 'imap', 'cpu', 1, 100)" for pid in pids)
        con.execute(
            "CREATE TEMP TABLE process_causes AS "
            f"SELECT * FROM (VALUES {rows}) t (pid, comm, cause, n, ns)"
        )
        found = study_callers(con, Families(con))
    assert [row.pid for row in found.by_process] == [3, 5, 7]
