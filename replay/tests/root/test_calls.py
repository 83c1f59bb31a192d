"""Every call of calls.txt, made by the recorder's own oracle program, replayed one by one."""

import subprocess
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from spoolscope.replay.candidates import SMALLEST_BYTES, parse, prepared
from spoolscope.replay.outcomes import call_name, read_plan
from spoolscope.replay.plan import build
from spoolscope.replay.run import replay
from spoolscope.tracers.session import Request, record
from spoolscope.traces.trace import Trace

pytestmark = [pytest.mark.root, pytest.mark.steady]
ORACLE = Path(__file__).resolve().parents[3] / "tracers" / "tests" / "oracle"
# exec is not repeated when it failed, an unknown fcntl command cannot be trusted to be harmless,
# and the offsets that copy_file_range is given by pointer are not recorded.
SKIPPED = {"execve", "execveat", "fcntl"}
DIVERGED = {"copy_file_range"}


def test_every_call_gives_its_recorded_result(tmp_path, require, monkeypatch):
    require("bpf")
    require("ext4")
    program = tmp_path / "allcalls"
    sources = sorted(map(str, ORACLE.glob("*.c")))
    subprocess.run(["cc", "-O1", "-static", "-pthread", "-o", str(program), *sources], check=True)
    monkeypatch.setenv("ALLCALLS_COUNTS", str(tmp_path / "counts"))
    with prepared(parse("ext4"), tmp_path, SMALLEST_BYTES) as target:
        command = [str(program), str(target.mount)]
        done = record(Request([target.mount], tmp_path / "trace", command=command))
    assert done.command_status == 0
    (row,) = replay(done.trace, ["ext4"], tmp_path / "out", pace="afap")
    build(Trace.open(done.trace), tmp_path / "plan")
    ops = read_plan(tmp_path / "plan").ops
    verdicts = pq.read_table(Path(row["run"]) / "outcomes.parquet").column("verdict").to_pylist()
    found: dict[str, set[str]] = {"same": set(), "diverged": set(), "skipped": set()}
    for op, verdict in zip(ops, verdicts, strict=True):
        found[verdict].add(call_name(op))
    assert found["diverged"] <= DIVERGED
    assert found["skipped"] <= SKIPPED
    assert len(found["same"]) > 90
    assert row["final_state"]["mismatched"] == 0, row["final_state"]
