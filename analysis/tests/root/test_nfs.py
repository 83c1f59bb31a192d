"""A server of NFS in a machine, for a candidate: gone in every way out, if it is ours."""

import io
import json
import sys
from pathlib import Path

import pytest

from spoolscope.lab.vm.running import run

pytestmark = [pytest.mark.root, pytest.mark.steady]
PROGRAM = Path(__file__).with_name("served.py")
NOTHING = {"running": [], "loops": "", "mounts": [], "places": []}


def test_a_server_is_taken_down_in_every_way_out(lab_machine, tmp_path: Path) -> None:
    """By the processes, mounts and loop devices of the machine itself."""
    said, machine = io.BytesIO(), lab_machine("6.1")
    with run(machine, [sys.executable, PROGRAM], work=tmp_path, out=said) as ended:
        pass
    assert ended.status == 0
    told = json.loads(said.getvalue())
    assert told["killed"]["below"] == "mail"
    assert set(told["killed"]["running"]) >= {"nfsd", "rpc.mountd", "rpc.statd", "rpcbind"}
    assert told["killed"]["places"] == ["1", "2", "nfs"]
    # The kernel's threads, and what they have open, outlive the command; its programs do not.
    assert told["left"]["running"] == ["lockd", "nfsd"]
    assert told["left"]["loops"]
    assert "Removing " in told["cleaned"]
    assert told["after"] == NOTHING
    assert told["refused"] == "another NFS server runs in this machine"
    assert told["made"]["below"] == "mail"
    assert told["made"]["mounts"][0].split()[2] == "nfs4"
    assert told["at last"] == NOTHING
