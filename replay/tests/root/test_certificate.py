"""The certificate against a second clock, and with a fault that it must show."""

import os
import signal
import subprocess
import threading
import time
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from spoolscope.replay.candidates import parse
from spoolscope.replay.run import replay
from spoolscope.replay.targets import SMALLEST_BYTES, prepared
from spoolscope.tracers.session import Request, record
from spoolscope.traces.trace import Trace

pytestmark = [pytest.mark.root, pytest.mark.steady]
MS = 1_000_000
STOP_NS = 300 * MS


def test_the_recorder_sees_calls_issued_when_the_certificate_says(script, tmp_path, require):
    """Two sources of one time: the engine's clock, and the kernel's at the entry of the call."""
    require("bpf")
    require("ext4")
    for n in range(300):
        for tid in (10, 11, 12):
            script.call(tid, 5 * n + tid / 10, "mkdir", f"{tid}-{n}", mode=0o700, dur_ms=0.05)
    trace = script.write(tmp_path / "trace")

    def recorder(mount: Path, command: list[str], output: Path, _show: object) -> int:
        spool = mount.parent  # the recorder wants a mount point
        request = Request([spool], output, command=command, keep_names=True, snapshot="none")
        return record(request).command_status or 0

    with prepared(parse("ext4"), tmp_path, SMALLEST_BYTES) as target:
        place = target.mount / "spool"
        place.mkdir()
        (row,) = replay(trace, [f"dir:{place}"], tmp_path / "out", recorder=recorder)
    assert row["executed"] == 900
    assert row["divergent"] == 0
    out = Path(row["run"])
    outcomes = pq.read_table(out / "outcomes.parquet")
    seen = Trace.open(out / "trace").table("syscalls")
    ours = seen.filter([name == "mkdir" for name in seen["syscall"].to_pylist()])
    entered = {tid: [] for tid in set(outcomes["tid"].to_pylist())}
    for tid, at in zip(ours["tid"].to_pylist(), ours["ts_ns"].to_pylist(), strict=True):
        if tid in entered:
            entered[tid].append(at - row["start_epoch_ns"])
    opened = Trace.open(trace)
    due = opened.table("syscalls")["ts_ns"].to_numpy() - opened.meta["start_ns"]
    late, told = [], []
    for tid, calls in entered.items():
        mine = np.array(outcomes["tid"].to_pylist()) == tid
        issue = np.sort(outcomes["issue_ns"].to_numpy()[mine])
        end = np.sort(outcomes["end_ns"].to_numpy()[mine])
        calls = np.sort(np.array(calls))
        assert len(calls) == len(issue)
        # 50 us: the offset of the two clocks was measured at other moments.
        assert (calls >= issue - 50_000).all()
        assert (calls <= end + 50_000).all()
        expected = np.sort(due[outcomes["call"].to_numpy()[mine]])
        late.append(calls - expected)
        told.append(issue - expected)
    by_recorder, by_engine = np.concatenate(late), np.concatenate(told)
    assert row["lateness_p50_ns"] == np.percentile(by_engine, 50, method="higher")
    assert row["lateness_p99_ns"] == np.percentile(by_engine, 99, method="higher")
    # The difference is the way into the kernel, on which the CPU is sometimes lost.
    assert abs(np.median(by_recorder) - row["lateness_p50_ns"]) < 100_000


@pytest.mark.times
def test_a_stopped_task_is_told(script, tmp_path):
    """After SIGSTOP for 300 ms the calls of that task are late, because of the machine."""
    for n in range(400):
        for tid in (10, 11):
            script.call(tid, 5 * n, "stat", "x", ret=-2)
    trace = script.write(tmp_path / "trace")
    stopped: list[int] = []

    def recorder(_mount: Path, command: list[str], _output: Path, _show: object) -> int:
        engine = subprocess.Popen(command)
        stopper = threading.Thread(target=_stop_one, args=(engine.pid, stopped))
        stopper.start()
        status = engine.wait()
        stopper.join()
        return status

    (tmp_path / "t").mkdir()
    (row,) = replay(trace, [f"dir:{tmp_path / 't'}"], tmp_path / "out", recorder=recorder)
    assert len(stopped) == 1
    told = row["certificate"]
    late = told["lateness"]
    # Calls are due every 5 ms: the stop began at most that long before one was due.
    assert late["longest_stall"]["ns"] >= STOP_NS - 5 * MS
    assert late["max_ns"] >= STOP_NS - 5 * MS
    # 60 of its 400 calls were due meanwhile; those of the last ms may be less than 1 ms late.
    assert late["over_1ms_by_machine"] >= 57
    assert late["parts"]["machine"]["share"] > 0.5
    assert told["verdict"] == "unfaithful"
    (reason,) = [reason for reason in told["reasons"] if "stall" in reason]
    assert "the machine made 1 % of the calls over" in reason
    outcomes = pq.read_table(Path(row["run"]) / "outcomes.parquet")
    issued = np.array(outcomes["issue_ns"])[np.array(outcomes["tid"]) == stopped[0]]
    assert np.diff(np.sort(issued)).max() >= STOP_NS - 5 * MS


def _stop_one(engine: int, stopped: list[int]) -> None:
    """Stop the first task of an engine for 300 ms, in the midst of the run."""
    children = Path(f"/proc/{engine}/task/{engine}/children")
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        found = children.read_text().split()
        if len(found) == 2:
            break
        time.sleep(0.01)
    time.sleep(0.6)
    task = int(found[0])
    os.kill(task, signal.SIGSTOP)
    began = time.monotonic_ns()
    while time.monotonic_ns() - began < STOP_NS:
        time.sleep(0.005)
    os.kill(task, signal.SIGCONT)
    stopped.append(task)
