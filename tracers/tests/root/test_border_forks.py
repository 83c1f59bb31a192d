"""A fork storm over borders: files inherited during the scan at a border are known."""

import collections
import json
import sys

import pytest

from spoolscope.tracers.request import Limit
from spoolscope.tracers.session import Request, record
from spoolscope.traces.recording import Recording
from spoolscope.traces.trace import Trace

pytestmark = [pytest.mark.root, pytest.mark.steady]

# Processes are scanned in the order of their pids. Those of the children are low, as on any machine
# whose pids have wrapped around: the scan does not meet a child that is forked late in it.
# A parent opens files and forks; it closes them at once, so that only the child has them. Each
# child reads for a while, then prints how long it had which file, and its working directory.
STORM = """
import json, os, sys, time
spool, seconds = sys.argv[1], float(sys.argv[2])
end = time.monotonic() + seconds
for box in range(8): os.makedirs(f"{spool}/box{box}", exist_ok=True)
said = os.open(sys.argv[3], os.O_CREAT | os.O_WRONLY | os.O_APPEND)
n, alive = 0, 0
def next_pid(number):
    with open("/proc/sys/kernel/ns_last_pid", "w") as last: last.write(str(number))
next_pid(31000)
if middle := os.fork(): os._exit(os.waitstatus_to_exitcode(os.waitpid(middle, 0)[1]))
while time.monotonic() < end:
    name = f"file{n}"
    os.chdir(f"{spool}/box{n % 8}")
    fd = os.open(name, os.O_CREAT | os.O_RDWR, 0o600)
    if n % 2: os.unlink(name)
    next_pid(300 + n % 500)
    if not os.fork():
        begin, until = time.time_ns(), time.monotonic() + 0.001 * (n % 80)
        while time.monotonic() < until:
            os.pwrite(fd, b"x", 0)
            os.access("nothing", os.F_OK)
            time.sleep(0.003)
        line = [os.getpid(), fd, f"box{n % 8}", name, begin, time.time_ns()]
        os.write(said, (json.dumps(line) + "\\n").encode())
        os._exit(0)
    os.close(fd)
    alive += 1
    n += 1
    while alive and os.waitpid(-1, os.WNOHANG if alive < 40 else 0)[0]: alive -= 1
    time.sleep(0.0005)
while alive: alive -= bool(os.waitpid(-1, 0))
"""


def test_what_children_of_the_scan_inherited_is_known(spool, tmp_path):
    mount, output = spool("ext4"), tmp_path / "rec"
    script, said = tmp_path / "storm.py", tmp_path / "said"
    script.write_text(STORM)
    record(
        Request(
            spools=[mount],
            output=output,
            command=[sys.executable, str(script), str(mount), "6", str(said)],
            keep_names=True,
            snapshot="none",
            rotate=Limit(age_s=0.2),
        )
    )
    children = [json.loads(line) for line in said.read_text().splitlines()]
    assert len(children) > 500
    traces = [Trace.open(path) for path in Recording.open(output).traces()]
    assert len(traces) > 8
    wrong, n = [], 0
    for trace in traces:
        n += _check_names(trace, children, wrong)
        _check_open(trace, children, wrong)
        assert trace.meta["paths_unresolved"] == 0
    assert wrong == []
    assert n > 5000


def _check_names(trace, children, wrong) -> int:
    """Check that every call of a child has the file or directory that the child printed."""
    rows = trace.connect().execute(
        "SELECT s.pid, s.ts_ns, s.syscall, p.path FROM syscalls s LEFT JOIN paths p USING (path_id)"
        " WHERE s.syscall IN ('pwrite64', 'access', 'faccessat', 'faccessat2')"
    )
    of_pid = collections.defaultdict(list)
    for pid, _, box, name, begin, end in children:
        of_pid[pid].append((begin, end, box, name))
    n = 0
    for pid, ts_ns, call, path in rows.fetchall():
        for begin, end, box, name in of_pid[pid]:
            if begin < ts_ns < end:
                n += 1
                if path != f"{box}/{name if call == 'pwrite64' else 'nothing'}":
                    wrong.append((trace.path.name, pid, call, path, box, name))
    return n


def _check_open(trace, children, wrong) -> None:
    """Check that open_files has the files that children, by their output, had at the border."""
    if trace.meta["segment"] == 1:
        return
    at_ns, slack = trace.meta["snapshot_ns"], 2_000_000
    rows = trace.connect().execute(
        "SELECT o.pid, o.fd, p.path FROM open_files o JOIN paths p USING (path_id)"
    )
    had = {(pid, fd): path for pid, fd, path in rows.fetchall()}
    for pid, fd, box, name, begin, end in children:
        if begin < at_ns - slack and end > at_ns + slack and had.get((pid, fd)) != f"{box}/{name}":
            wrong.append((trace.path.name, pid, fd, box, name, had.get((pid, fd))))
