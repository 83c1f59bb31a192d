"""A program descends to the spool from the root, by descriptors of directories above it."""

import sys
from pathlib import Path

import pytest

from spoolscope.replay.run import replay
from spoolscope.tracers.session import Request, record

pytestmark = [pytest.mark.root, pytest.mark.steady]
FILES = 20


@pytest.mark.parametrize("keep_names", [True, False])
def test_directories_are_known_from_above_the_spool(spool, tmp_path, keep_names):
    mount = spool("ext4")
    command = [sys.executable, str(Path(__file__).with_name("from_above.py")), str(mount)]
    request = Request([mount], tmp_path / "trace", command=command, keep_names=keep_names)
    done = record(request)
    assert done.command_status == 0
    boxes = [(mount / f"box{number}").stat() for number in range(FILES)]
    assert {box.st_mode for box in boxes} == {0o40751}
    (row,) = replay(done.trace, ["ext4"], tmp_path / "out", pace="afap")
    told = (Path(row["run"]) / "divergences.json").read_text()
    assert row["executed"] == row["syscalls"] > 10 * FILES, told
    assert row["divergent"] == 0, told
    assert row["final_state"]["mismatched"] == 0, row["final_state"]
    assert row["final_state"]["checked"] >= 2 * FILES
