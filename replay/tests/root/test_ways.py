"""Every call that takes a name, by names that end in slashes and dots or lead through them."""

import json
import sys
from errno import errorcode
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from spoolscope.replay.outcomes import read_plan
from spoolscope.replay.plan import build
from spoolscope.replay.run import replay
from spoolscope.tracers.session import Request, record
from spoolscope.traces.trace import Trace

pytestmark = [pytest.mark.root, pytest.mark.steady]


ERRORS = {"ENOENT", "ENOTDIR", "EISDIR", "EEXIST", "ENOTEMPTY", "EBUSY", "EINVAL", "ELOOP"}


def test_a_name_leads_where_it_led(spool, tmp_path):
    mount, seen = spool("ext4"), tmp_path / "seen"
    command = [sys.executable, str(Path(__file__).with_name("ways.py")), str(mount), str(seen)]
    done = record(Request([mount], tmp_path / "trace", command=command, keep_names=True))
    assert done.command_status == 0
    (row,) = replay(done.trace, ["ext4"], tmp_path / "out", pace="afap")
    told = (Path(row["run"]) / "divergences.json").read_text()
    assert row["divergent"] == 0, told
    assert row["final_state"]["mismatched"] == 0, row["final_state"]
    # The kernel refuses to remove a mount point, on any filesystem, and to make one that a slash
    # follows in a way of its own.
    assert row["skipped"] <= 4, told
    assert replayed(done.trace, row, tmp_path) == told_by_program(seen)


def told_by_program(seen: Path) -> dict[str, set[str]]:
    """Return the errors of each case from the program's log."""
    results = json.loads(seen.read_text())
    errors = {case: {got} if str(got).startswith("E") else set() for case, _, _, got in results}
    assert len(errors) > 3000
    assert set.union(*errors.values()) >= ERRORS
    return errors


def replayed(trace: Path, row: dict[str, object], place: Path) -> dict[str, set[str]]:
    """Return the errors of each case in the replay."""
    build(Trace.open(trace), place / "plan")
    plan = read_plan(place / "plan")
    failed = pq.read_table(Path(str(row["run"])) / "outcomes.parquet").column("errno").to_pylist()
    errors: dict[str, set[str]] = {}
    for op, error in zip(plan.ops, failed, strict=True):
        case = plan.strings[op["path"]].split("/")[0] if op["path"] < len(plan.strings) else ""
        if case[:1] == "c" and case[1:].isdecimal():
            found = errors.setdefault(case, set())
            found |= {errorcode[error]} if error else set()
    return errors
