"""Six processes reach one mailbox by four names, through symlinks: same winners, same tree."""

import json
import sys
from pathlib import Path

import pytest

from spoolscope.replay.run import replay
from spoolscope.tracers.session import Request, record

pytestmark = [pytest.mark.root, pytest.mark.steady]
MAILS = 600


@pytest.mark.parametrize("keep_names", [True, False])
def test_names_through_symlinks_are_put_in_order_with_those_they_stand_for(
    spool, tmp_path, keep_names
):
    mount = spool("ext4")
    command = [sys.executable, str(Path(__file__).with_name("aliases.py")), str(mount)]
    request = Request([mount], tmp_path / "trace", command=command, keep_names=keep_names)
    done = record(request)
    assert done.command_status == 0  # each mail was taken once, and each swap seen
    assert len(list((mount / "example.com/alice/cur").iterdir())) == MAILS
    (row,) = replay(done.trace, ["ext4"], tmp_path / "out", pace="afap")
    told = (Path(row["run"]) / "divergences.json").read_text()
    assert row["executed"] == row["syscalls"] > 4 * MAILS, told
    assert row["divergent"] == 0, told
    assert row["final_state"]["mismatched"] == 0, row["final_state"]
    assert row["final_state"]["checked"] > MAILS
    plan = json.loads((tmp_path / "out/plan.json").read_text())
    # One of the two delivering processes uses another name, in four calls for each mail.
    assert row["syscalls"] > plan["followed"] > 2 * MAILS
