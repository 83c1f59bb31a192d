"""Triggers of commits that no recorded process asked for."""

import subprocess
import sys

import pytest

from spoolscope.tracers.session import Request, record
from spoolscope.traces.trace import Trace

pytestmark = [pytest.mark.root, pytest.mark.steady]

# It changes names and data until the other process has synced often; it never asks for a commit.
RECORDED = """
import os, sys, time
os.chdir(sys.argv[1])
n, wanted = 0, os.path.getsize("own") + 2500
while os.path.getsize("own") < wanted:
    with open(f"mail{n % 50}", "wb") as file:
        file.write(b"x" * 3000)
    n += 1
    time.sleep(0.002)
"""

# It is not recorded; it syncs its own file until its input ends, and prints how often it did.
OUTSIDER = """
import os, select, sys
open("/proc/self/comm", "w").write("outsider")
fd = os.open(sys.argv[1] + "/own", os.O_CREAT | os.O_WRONLY)
n = 0
while not select.select([0], [], [], 0.05)[0]:
    os.write(fd, b"y" * 100)
    os.fsync(fd)
    n += 1
print(n)
"""


@pytest.mark.parametrize("fstype", ["ext4", "xfs", "btrfs"])
def test_a_task_that_is_not_recorded_asks_for_commits(spool, tmp_path, fstype):
    mount = spool(fstype)
    command = [sys.executable, "-S", "-c", RECORDED, str(mount)]
    request = Request(spools=[mount], output=tmp_path / "t", command=command, keep_names=True)
    with subprocess.Popen(
        [sys.executable, "-S", "-c", OUTSIDER, mount],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    ) as outsider:  # fmt: skip
        trace = Trace.open(record(request).trace)
        said, _ = outsider.communicate()
    asked = (
        trace.connect()
        .execute(
            "SELECT trigger, trigger_comm, count(*), count(trigger_seq) FROM commits GROUP BY ALL"
        )
        .fetchall()
    )
    print(fstype, said, asked)
    by = {(trigger, comm): n for trigger, comm, n, _ in asked}
    assert not any(seqs for _, comm, _, seqs in asked if comm == "outsider")
    assert {trigger for trigger, comm in by if comm == "outsider"} == {"other"}
    # It began before the recording and ended after it, so some of its syncs are not recorded; of
    # the 25 recorded ones, some may have found nothing to commit.
    assert 10 <= by["other", "outsider"] <= 2 * int(said)
