"""A call on a name inside of a file is no evidence that the name exists."""

import subprocess
import sys
from pathlib import Path

import pytest

from spoolscope.replay.run import replay
from spoolscope.tracers.session import Request, record

pytestmark = [pytest.mark.root, pytest.mark.steady]
PROGRAM = Path(__file__).with_name("inside_files.py")


def test_a_file_used_as_a_directory_fails_again_and_leaves_nothing(spool, tmp_path):
    mount = spool("ext4")
    work = "mkdir before; echo x > before/file; mkfifo before/pipe; ln -s file before/link"
    subprocess.run(work, shell=True, cwd=mount, check=True)
    work = f"cd {mount} && {sys.executable} -S {PROGRAM}"
    done = record(Request([mount], tmp_path / "trace", command=["sh", "-c", work]))
    assert done.command_status == 0
    (row,) = replay(done.trace, ["ext4"], tmp_path / "out", pace="afap")
    assert row["divergent"] == 0, (Path(row["run"]) / "divergences.json").read_text()
    # The pipe is not opened.
    assert row["certificate"]["calls"]["skipped_for"] == {"not_a_file": 1}
    assert row["executed"] == row["syscalls"] - 1 > 800
    found = subprocess.check_output(["find", mount, "-printf", "x"])
    assert row["final_state"]["checked"] == len(found) - 1  # lost+found is not compared
    assert row["final_state"]["mismatched"] == 0, row["final_state"]
