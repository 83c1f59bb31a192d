"""Attached in the middle of a storm, a recording misses nothing: its replay ends where that did."""

import os
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from spoolscope.replay.run import replay
from spoolscope.tracers.session import Request, record
from spoolscope.traces.trace import Trace

sys.path.insert(0, str(Path(__file__).parent))
from storm import prepare

pytestmark = pytest.mark.root
STORM = Path(__file__).with_name("storm.py")


def tree(top: Path) -> dict[str, tuple[int, int, int]]:
    """Mode, links and size of every name; sizes of directories mean nothing."""
    found = {}
    for path, directories, files in os.walk(top):
        for name in directories + files:
            at = Path(path, name)
            s = at.lstat()
            size = s.st_size if stat.S_ISREG(s.st_mode) else 0
            found[str(at.relative_to(top))] = (s.st_mode, s.st_nlink, size)
    found.pop("lost+found", None)
    return found


@pytest.mark.parametrize("seed", [1])
def test_nothing_is_missed_in_a_storm(spool, tmp_path, when_ready, seed):
    mount = spool("ext4")
    prepare(str(mount))
    command = [sys.executable, STORM, mount, str(seed)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as storm:
        storm.stdout.readline()

        def end_soon() -> None:
            time.sleep(0.7)
            storm.stdin.close()

        when_ready(tmp_path / "trace", end_soon)
        request = Request(
            spools=[mount],
            output=tmp_path / "trace",
            duration_s=2.5,
            keep_names=True,
            snapshot_rate=4000,
        )
        summary = record(request)
    assert storm.returncode == 0
    losses = Trace.open(summary.trace).table("losses")["kind"].to_pylist()
    assert not {"syscall", "task"} & set(losses)
    replayed = {}

    def look(target: Path, command: list[str], _: Path) -> int:
        """In the recorder's place: see what the replay leaves."""
        done = subprocess.run(command, check=False)
        replayed.update(tree(target))
        return done.returncode

    (row,) = replay(summary.trace, ["ext4"], tmp_path / "out", pace="afap", recorder=look)
    assert (row["divergent"], row["final_state"]["mismatched"]) == (0, 0)
    recorded = tree(mount)
    assert {name: replayed.get(name) for name in recorded} == recorded
    assert replayed.keys() == recorded.keys()
