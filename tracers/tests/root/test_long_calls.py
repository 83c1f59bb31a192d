"""Calls that last over several traces of a series, and lose their CPU again and again."""

import json
import sys

import duckdb
import pytest

from spoolscope.tracers.request import Limit
from spoolscope.tracers.session import Request, record
from spoolscope.traces.recording import Recording
from spoolscope.traces.trace import Trace

pytestmark = pytest.mark.root

# One process makes large writes with a tenth of a CPU; others fill traces at the same time. It
# prints its calls, and how long it waited for a CPU about the longest.
WORK = """
import json, os, sys, time
spool = sys.argv[1]
children = []
for hog in range(4):
    child = os.fork()
    while not child:
        pass
    children.append(child)
child = os.fork()
while not child:
    os.close(os.open(f"{spool}/small", os.O_CREAT | os.O_WRONLY))
    time.sleep(0.001)
children.append(child)
os.nice(10)
for n in range(100):
    os.close(os.open(f"{spool}/own", os.O_CREAT | os.O_WRONLY))
fd, data = os.open(f"{spool}/large", os.O_CREAT | os.O_WRONLY), bytes(120 << 20)
def waited():
    return int(open("/proc/self/schedstat").read().split()[1])
before = waited()
began = time.monotonic_ns()
os.pwrite(fd, data, 0)
took = time.monotonic_ns() - began
ready = waited() - before
os.close(fd)
for child in children:
    os.kill(child, 9)
    os.waitpid(child, 0)
print(json.dumps({"pid": os.getpid(), "calls": 203, "longest_ns": took, "ready_ns": ready}))
"""


def test_a_call_over_several_borders_is_no_lost_one(spool, tmp_path):
    mount, output, script = spool("ext4"), tmp_path / "rec", tmp_path / "work.py"
    script.write_text(WORK)
    summary = record(
        Request(
            spools=[mount],
            output=output,
            command=["sh", "-c", f"{sys.executable} {script} {mount} > {tmp_path}/said"],
            rotate=Limit(size_bytes=20_000),
        )
    )
    said = json.loads((tmp_path / "said").read_text())
    traces = [Trace.open(path) for path in Recording.open(output).traces()]
    lost = [row for trace in traces for row in trace.table("losses").to_pylist()]
    assert (lost, summary.meta["complete"], summary.meta["lost"]) == ([], True, 0)
    files = [str(trace.path / "syscalls.parquet") for trace in traces]
    calls, records, numbers, longest_ns, ready_ns, borders = duckdb.sql(
        "SELECT count(*) FILTER (path_id >= 0 AND syscall IN ('openat', 'pwrite64', 'close')),"
        " count(*), max(seq) - min(seq) + 1, max(dur_ns),"
        " arg_max(runq_ns + preempted_ns, dur_ns),"
        " max((SELECT count(*) FROM unnest($starts) AS s(begin_ns)"
        "      WHERE begin_ns BETWEEN ts_ns AND ts_ns + dur_ns))"
        f" FROM read_parquet({files}) WHERE tid = $pid",
        params={"pid": said["pid"], "starts": [trace.meta["start_ns"] for trace in traces]},
    ).fetchall()[0]
    assert (calls, records) == (said["calls"], numbers)
    # It may also have waited for a CPU between its clock and the call.
    around_ns = said["ready_ns"] - ready_ns
    assert -0.01 * longest_ns < around_ns
    assert said["longest_ns"] - around_ns == pytest.approx(longest_ns, rel=0.02)
    assert borders >= 2
