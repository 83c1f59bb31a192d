"""Common parts of tests that record a storm and look at its replay."""

import os
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from spoolscope.replay.run import replay
from spoolscope.tracers.session import Request, record
from spoolscope.traces.trace import Trace

STORM = Path(__file__).with_name("storm.py")
Tree = dict[str, tuple[int, int, int]]


def tree(top: Path) -> Tree:
    """Return mode, links and size of every name, without the sizes of directories."""
    found = {}
    for path, directories, files in os.walk(top):
        for name in directories + files:
            at = Path(path, name)
            s = at.lstat()
            size = s.st_size if stat.S_ISREG(s.st_mode) else 0
            found[str(at.relative_to(top))] = (s.st_mode, s.st_nlink, size)
    found.pop("lost+found", None)
    return found


def record_storm(
    mount: Path, seed: int, output: Path, when_ready: Callable[..., None], **values: Any
) -> Trace:
    """Record the middle of a storm; the storm ends before the recording does."""
    command = [sys.executable, STORM, mount, str(seed)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as storm:
        storm.stdout.readline()

        def end_soon() -> None:
            time.sleep(0.7)
            storm.stdin.close()

        when_ready(output, end_soon)
        # The time includes the snapshot: at 4,000 names a second it takes two seconds.
        record(Request(spools=[mount], output=output, duration_s=6, keep_names=True, **values))
    assert storm.returncode == 0
    return Trace.open(output)


def replayed(trace: Trace, out: Path) -> tuple[dict[str, Any], Tree]:
    """Replay on ext4; return the replay's result, and the resulting tree."""
    left: Tree = {}

    def look(target: Path, command: list[str], _: Path, _show: object) -> int:
        """Look at the replay's resulting tree, in place of the recorder."""
        done = subprocess.run(command, check=False)
        left.update(tree(target))
        return done.returncode

    (row,) = replay(trace.path, ["ext4"], out, pace="afap", recorder=look)
    return row, left
